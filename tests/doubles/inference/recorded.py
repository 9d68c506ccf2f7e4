"""A grammar whose masks a test chooses."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Recorded:
    """A grammar that allows one set of tokens after the other, the last for ever; records accepted tokens."""

    sets: list[set[int]]
    size: int = 64
    accepted: list[int] = field(default_factory=list)

    def start(self) -> Recorded:
        return Recorded(self.sets, self.size, self.accepted)

    def mask(self) -> bytes:
        allowed = self.sets[min(len(self.accepted), len(self.sets) - 1)]
        bits = sum(1 << token for token in allowed)
        return bits.to_bytes(self.size // 8, "little")

    def accept(self, token: int) -> None:
        self.accepted.append(token)
