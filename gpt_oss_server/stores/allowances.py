"""Allowances, and charges of them. `sql/allowances` keeps them.

An allowance is a limit per minute: it may be used up in one moment, and grows again by its sixtieth part a
second.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Charge:
    name: str
    amount: float
    limit: int  # per minute


@dataclass(frozen=True, slots=True)
class Left:
    """What is left of an allowance after a charge."""

    charge: Charge
    amount: float  # below 0 where more was used than had been charged before

    @property
    def seconds_until_full(self) -> float:
        return _seconds_to_grow(max(0.0, self.charge.limit - self.amount), self.charge.limit)


class Refused(Exception):
    """The allowance has less left than the charge. Nothing was charged."""

    def __init__(self, charge: Charge, left: Left) -> None:
        super().__init__(charge.name)
        self.charge = charge
        self.left = left

    @property
    def seconds(self) -> float:
        """Until there is enough, if nothing else is charged."""
        return _seconds_to_grow(self.charge.amount - self.left.amount, self.charge.limit)


def _seconds_to_grow(amount: float, limit: int) -> float:
    return amount * 60 / limit


@dataclass(slots=True)
class Allowance:
    """What is left of a limit at a moment. It starts full."""

    amount: float
    limit: int  # per minute
    at: float

    @classmethod
    def full(cls, limit: int, now: float) -> Allowance:
        return cls(float(limit), limit, now)

    @property
    def is_full(self) -> bool:
        return self.amount >= self.limit

    def seconds_until(self, amount: float) -> float:
        """Until there is as much, if nothing is used meanwhile; 0 or less if there is."""
        return _seconds_to_grow(amount - self.amount, self.limit)

    def grow(self, limit: int, now: float) -> None:
        """To what is left at `now`, of a limit that may be another one since."""
        self.amount = min(float(limit), self.amount + (now - self.at) * limit / 60)
        self.limit, self.at = limit, now
