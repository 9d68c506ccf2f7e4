"""The contract between the prefix cache and the tiers below it: blocks that leave its memory, and come back.

Takes the names of blocks and their places. It must not know where lower tiers keep what they hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """A block of one kind of layer, in the engine's memory."""

    kind: int
    name: bytes
    block: int
    take: int  # the number of the block's last take, when it had this content


@dataclass(slots=True, eq=False)
class Fetch:
    """Blocks that are being filled from lower tiers, and those of their prefix."""

    tables: list[list[int]]  # for each kind of layer, what it holds
    names: list[bytes]  # of the prefix beyond the memory's own
    wanted: list[Place]  # to be filled
    filled: list[Place] = field(default_factory=list)
    cancelled: bool = False


class LowerTiers(Protocol):
    def holds(self, kind: int, name: bytes) -> bool: ...

    def is_worth(self, tokens: int, missing: Sequence[tuple[int, bytes]]) -> bool:
        """Whether fetching these blocks takes less time than computing the tokens."""

    def fetch(self, fetch: Fetch) -> None:
        """Begins to fill the blocks."""

    def arrived(self) -> list[Fetch]:
        """Those that have ended since the last call, whether or not all their blocks could be filled."""

    def cancel(self, fetch: Fetch) -> None:
        """From here on none of its blocks is written to."""

    def keep(self, salt: str, places: Sequence[Place]) -> None:
        """Begins to copy blocks out of memory. It skips those that are taken again before it copies them."""
