"""What stores of owners' objects share in a database: the view of one owner, and pages of its rows."""

import copy
from collections.abc import Sequence
from typing import Self

from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.database import Database, Row, Transaction, Value

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


def rows_after(
    tx: Transaction,
    table: str,
    columns: str,
    owner: str,
    after: str | None,
    most: int,
    *,
    newest_first: bool = True,
    only: str = "",
    values: Sequence[Value] = (),
) -> list[Row] | None:
    """At most `most` rows of the owner that follow the one with the id `after`; None: there is no such.

    `only`, with its values, says which of the rows.
    """
    order, sign = ("DESC", "<") if newest_first else ("ASC", ">")
    where, given = f"owner = ?{only and f' AND {only}'}", [owner, *values]
    if after is not None:
        sql = f"SELECT position FROM {table} WHERE id = ? AND owner = ?"
        if not (rows := tx.rows(sql, key_of(after), owner)):
            return None
        where, given = f"{where} AND position {sign} ?", [*given, rows[0][0]]
    sql = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY position {order} LIMIT ?"
    return tx.rows(sql, *given, most)
