"""The contract of a store of events that webhooks are told, until each address has taken them.

Takes the kind of an event and the id of its object. Returns what is due, which no other process gets for a
while. An event has one id, which follows from its kind and object, so that adding it again changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event for one address; "": the addresses of the owner are not known yet."""

    id: str
    url: str
    owner: str
    attempts: int  # this one included
    body: bytes


class Deliveries(Protocol):
    @property
    def enabled(self) -> bool:
        """Whether anybody is told anything."""

    def of(self, owner: str) -> Self: ...

    async def add(self, kind: str, object_id: str, now: int) -> None:
        """An event such as `response.completed`, to be told to the owner's addresses."""

    async def next(self, seconds: float) -> Delivery | None:
        """What is due; it is due again after these seconds, unless it is done by then."""

    async def addressed(self, delivery: Delivery, urls: Iterable[str]) -> None:
        """Replaces the delivery by one to each address."""

    async def later(self, delivery: Delivery, seconds: float) -> None: ...

    async def done(self, delivery: Delivery) -> None: ...
