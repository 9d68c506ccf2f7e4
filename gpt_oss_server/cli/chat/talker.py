"""The contract between the chat and the model that answers, here or on a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

Item = dict[str, Any]
Event = Mapping[str, Any]


class CannotAnswer(Exception):
    """There is no answer to this request. The message is a sentence for the user."""


class Talker(Protocol):
    @property
    def introduction(self) -> str:
        """The model's name and what it is."""

    @property
    def is_demo(self) -> bool:
        """Whether it is the embedded model, which was trained only to show a few things."""

    def answer(self, body: Item, show: Callable[[Event], None]) -> Item:
        """Streams the events of one response to `show` and returns it; an interrupt stops the model.

        Raises CannotAnswer.
        """

    def close(self) -> None: ...
