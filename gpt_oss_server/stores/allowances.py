"""The contract of a store of allowances, and the one in memory.

An allowance is a limit per minute: it may be used up in one moment, and grows again by its sixtieth part a
second. A new store passes `tests/contracts/allowances_contract.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

_MOST_NAMES = 10_000  # then those that are full again are dropped


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


class Allowances(Protocol):
    async def take(self, charges: Sequence[Charge]) -> list[Left]:
        """Makes all charges or none. Raises `Refused`."""

    async def give_back(self, charges: Sequence[Charge]) -> None:
        """Adds the amounts to the allowances again; a negative one is used up in addition."""


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


class MemoryAllowances:
    """The allowances of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._allowances: dict[str, Allowance] = {}

    async def take(self, charges: Sequence[Charge]) -> list[Left]:
        allowances = [self._grown(charge) for charge in charges]
        for charge, allowance in zip(charges, allowances, strict=True):
            if allowance.amount < charge.amount:
                raise Refused(charge, Left(charge, allowance.amount))
        for charge, allowance in zip(charges, allowances, strict=True):
            allowance.amount -= charge.amount
        return [Left(charge, allowance.amount) for charge, allowance in zip(charges, allowances, strict=True)]

    async def give_back(self, charges: Sequence[Charge]) -> None:
        for charge in charges:
            self._grown(charge).amount += charge.amount

    def _grown(self, charge: Charge) -> Allowance:
        now = self._clock()
        allowance = self._allowances.get(charge.name)
        if allowance is None:
            if len(self._allowances) >= _MOST_NAMES:
                self._drop_full(now)
            allowance = self._allowances[charge.name] = Allowance.full(charge.limit, now)
        allowance.grow(charge.limit, now)
        return allowance

    def _drop_full(self, now: float) -> None:
        for name, allowance in list(self._allowances.items()):
            allowance.grow(allowance.limit, now)
            if allowance.is_full:
                del self._allowances[name]
