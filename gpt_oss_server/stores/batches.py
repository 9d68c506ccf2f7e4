"""The contract of a store of batches: their objects, who works on them, and the answers to their lines.

Takes the API's objects. A batch is worked on by one process at a time, which holds it by a lease. What
another process writes after it has lost the batch changes nothing, so that each line has one answer. Answers
are kept until the batch ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

Batch = dict[str, Any]


@dataclass(slots=True)
class HeldBatch:
    """A batch that this process works on."""

    key: str
    owner: str
    fence: int
    batch: Batch
    caller: dict[str, Any]
    answered: set[int]  # lines, also those that have been answered since


class Batches(Protocol):
    def of(self, owner: str) -> Self:
        """The same store as this owner sees it."""

    async def add(self, batch: Batch, caller: Mapping[str, Any]) -> None: ...

    async def get(self, batch_id: str) -> Batch | None: ...

    async def page(self, after: str | None, most: int) -> list[Batch] | None:
        """At most `most` batches, newest first, that follow the one with the id `after`; None: no such."""

    async def cancel(self, batch_id: str, now: int) -> Batch | None:
        """Lets whoever works on the batch end it, if it has not ended; None: there is no such."""

    async def claim(self, lease: float) -> HeldBatch | None:
        """Takes a batch that nobody works on, whoever its owner is."""

    async def renew(self, held: HeldBatch, lease: float) -> str:
        """Returns the status, which another process may have changed. Raises `LeaseLost`."""

    async def change(self, held: HeldBatch, **fields: Any) -> None:
        """Changes the object; one that has ended keeps no answers. Raises `LeaseLost`."""

    async def answer(self, held: HeldBatch, number: int, succeeded: bool, answer: bytes) -> None:
        """Keeps the answer to a line, unless it has one. Raises `LeaseLost`."""

    async def answers(self, held: HeldBatch, after: int) -> list[tuple[int, bool, bytes]]:
        """Some answers to the lines after number `after`, in their order; none: there are no more."""

    async def give_back(self, held: HeldBatch) -> None:
        """Lets another process work on the batch at once."""
