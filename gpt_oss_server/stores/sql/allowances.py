"""Limits per minute in a table, for all servers that share it. All times are the database's.

An allowance is a limit per minute: it may be used up in one moment, and grows again by its sixtieth part a
second. `tests/contracts/allowances_contract.py` checks it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_oss_server.stores.sql.database import Database, Transaction

_GROWN = "CASE WHEN amount + ({now} - counted_at) * ? > ? THEN ? ELSE amount + ({now} - counted_at) * ? END"


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


class Allowances:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, charges: Sequence[Charge]) -> list[Left]:
        """Makes all charges or none. Raises `Refused`."""
        ordered = sorted(charges, key=lambda charge: charge.name)  # two servers never wait for each other

        def work(tx: Transaction) -> dict[str, Left]:
            return {charge.name: _take(tx, charge) for charge in ordered}

        left = await self._database.write(work)
        return [left[charge.name] for charge in charges]

    async def give_back(self, charges: Sequence[Charge]) -> None:
        """Adds the amounts to the allowances again; a negative one is used up in addition."""

        def work(tx: Transaction) -> None:
            for charge in sorted(charges, key=lambda charge: charge.name):
                sql = "UPDATE allowances SET amount = amount + ? WHERE name = ?"
                tx.run(sql, float(charge.amount), charge.name)

        await self._database.write(work)


def _take(tx: Transaction, charge: Charge) -> Left:
    limit, rate = float(charge.limit), charge.limit / 60
    sql = (
        "INSERT INTO allowances (name, amount, counted_at) VALUES (?, ?, {now}) ON CONFLICT (name) DO NOTHING"
    )
    tx.run(sql, charge.name, limit)
    sql = f"UPDATE allowances SET amount = {_GROWN}, counted_at = {{now}} WHERE name = ? RETURNING amount"
    [[amount]] = tx.rows(sql, rate, limit, limit, rate, charge.name)
    if amount < charge.amount:
        raise Refused(charge, Left(charge, float(amount)))
    tx.run("UPDATE allowances SET amount = amount - ? WHERE name = ?", float(charge.amount), charge.name)
    return Left(charge, float(amount) - charge.amount)


def lock_allowance(tx: Transaction, name: str) -> None:
    """Until the end of the transaction, other transactions that lock this name wait."""
    sql = "INSERT INTO allowances (name, amount, counted_at) VALUES (?, 0, {now})"
    tx.run(f"{sql} ON CONFLICT (name) DO UPDATE SET counted_at = {{now}}", name)
