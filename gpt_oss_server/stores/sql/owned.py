"""What stores of owners' objects share in a database: the view of one owner, and pages of its rows."""

import copy
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.database import Database, Transaction, Value

T = TypeVar("T")

LIVE = "(expires_at IS NULL OR expires_at > {now})"


class Owned:
    """As it is opened, a store belongs to the owner ""."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._owner = ""

    def of(self, owner: str) -> Self:
        if owner == self._owner:
            return self
        view = copy.copy(self)  # shares all but the owner
        view._owner = owner
        return view

    def _find(
        self, tx: Transaction, read: Callable[..., T], columns: str, table: str, own_id: str, only: str = ""
    ) -> T | None:
        """The owner's object with this id, which `read` makes of the transaction and the columns."""
        sql = f"SELECT {columns} FROM {table} WHERE id = ? AND owner = ?{only and f' AND {only}'}"
        rows = tx.rows(sql, key_of(own_id), self._owner)
        return read(tx, *rows[0]) if rows else None

    async def _page(
        self,
        read: Callable[..., T],
        columns: str,
        table: str,
        after: str | None,
        most: int,
        *,
        newest_first: bool = True,
        only: str = "",
        values: Sequence[Value] = (),
    ) -> list[T] | None:
        """At most `most` of the owner's objects that follow the one with the id `after`; None: there is no
        such. `read` makes each of the transaction and the columns; `only`, with its values, says which."""
        order, sign = ("DESC", "<") if newest_first else ("ASC", ">")

        def work(tx: Transaction) -> list[T] | None:
            where, given = f"owner = ?{only and f' AND {only}'}", [self._owner, *values]
            if after is not None:
                place = self._find(tx, lambda _, position: position, "position", table, after)
                if place is None:
                    return None
                where, given = f"{where} AND position {sign} ?", [*given, place]
            sql = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY position {order} LIMIT ?"
            return [read(tx, *row) for row in tx.rows(sql, *given, most)]

        return await self.database.read(work)
