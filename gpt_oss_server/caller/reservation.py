"""The tokens of one run: reserved before it begins, settled when it has ended."""

from __future__ import annotations

from collections.abc import Callable

Settle = Callable[[int, int], None]  # the tokens that were reserved, and those that were used


class Spending:
    def __init__(self, reserved: int = 0, settle: Settle | None = None) -> None:
        self._reserved = reserved
        self._settle = settle

    def settle(self, used: int) -> None:
        """Counts what was used in place of what was reserved. Only the first call counts."""
        settle, self._settle = self._settle, None
        if settle is not None:
            settle(self._reserved, used)


def no_spending() -> Spending:
    """Of a run whose tokens have no limit."""
    return Spending()
