"""Links of chains in a table, and those that were read lately in memory.

Takes additions and their parents within a transaction. Returns the additions of a chain. A link never changes
and its position is never used again, so that a copy in memory stays right.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from gpt_oss_server.stores.chain import Addition, Position, UnknownParent
from gpt_oss_server.stores.sql.codec import decode_addition
from gpt_oss_server.stores.sql.database import Transaction

_BYTES = 64 * 2**20  # of the links in memory
_TIMES = 10  # as large in memory as in the table: a token takes 4 bytes there, and about 40 here
_AT_ONCE = 256  # links of a chain that one query reads
_RELEASED = 32  # links that one transaction deletes; the sweeper deletes the rest


@dataclass(frozen=True, slots=True)
class Link:
    parent: int | None
    added: Addition
    size: int


class Links:
    """The links of one database. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._recent: OrderedDict[int, Link] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def remember(self, position: int, parent: int | None, added: Addition, size: int) -> Link:
        """Keeps a link that is in the table, so that the next turn need not read it."""
        link = Link(parent, added, size * _TIMES)
        with self._lock:
            if position not in self._recent and link.size < _BYTES:
                self._recent[position] = link
                self._bytes += link.size
                while self._bytes > _BYTES:
                    self._bytes -= self._recent.popitem(last=False)[1].size
        return link

    def chain(self, tx: Transaction, position: int | None) -> list[Addition]:
        """The additions of the chain that ends here, the oldest first."""
        chain: list[Addition] = []
        read: dict[int, Link] = {}
        while position is not None:
            link = read.get(position) or self._find(position)
            if link is None:
                read = self._read(tx, position)
                link = read[position]
            chain.append(link.added)
            position = link.parent
        return chain[::-1]

    def _find(self, position: int) -> Link | None:
        with self._lock:
            link = self._recent.get(position)
            if link is not None:
                self._recent.move_to_end(position)
        return link

    def _read(self, tx: Transaction, position: int) -> dict[int, Link]:
        rows = tx.rows(
            "WITH RECURSIVE chain (position, parent, body, depth) AS ("
            " SELECT position, parent, body, 1 FROM links WHERE position = ?"
            " UNION ALL SELECT links.position, links.parent, links.body, chain.depth + 1"
            " FROM chain JOIN links ON links.position = chain.parent WHERE chain.depth < ?"
            ") SELECT position, parent, body FROM chain",
            position,
            _AT_ONCE,
        )
        return {
            position: self.remember(position, parent, decode_addition(body), len(body))
            for position, parent, body in rows
        }


def number_of(position: Position | None) -> int | None:
    if position is None:
        return None
    if not position.isdecimal():  # another store's
        raise UnknownParent(position)
    return int(position)


def add_link(tx: Transaction, parent: int | None, body: bytes) -> int:
    """Adds a link with one holder, its owner."""
    if parent is not None:
        hold(tx, parent)
    return insert_link(tx, parent, body)


def insert_link(tx: Transaction, parent: int | None, body: bytes) -> int:
    """Like `add_link`, for a parent that is held already."""
    sql = "INSERT INTO links (parent, holders, size, body) VALUES (?, 1, ?, ?) RETURNING position"
    [[position]] = tx.rows(sql, parent, len(body), body)
    return int(position)


def hold(tx: Transaction, position: int) -> None:
    """Raises `UnknownParent` where the link is deleted."""
    if not tx.run("UPDATE links SET holders = holders + 1 WHERE position = ? AND holders > 0", position):
        raise UnknownParent(str(position))


def release(tx: Transaction, position: int | None, most: int = _RELEASED) -> int:
    """Removes one holder. Links without holders are deleted, or left to the sweeper if they are many."""
    deleted = 0
    while position is not None:
        sql = "UPDATE links SET holders = holders - 1 WHERE position = ? RETURNING holders, parent"
        [[holders, parent]] = tx.rows(sql, position)
        if holders or deleted == most:
            break
        tx.run("DELETE FROM links WHERE position = ?", position)
        deleted += 1
        position = parent
    return deleted


def delete_unheld(tx: Transaction, most: int) -> int:
    """Deletes links that `release` has left, and returns how many."""
    deleted = 0
    for position, parent in tx.rows(
        "SELECT position, parent FROM links WHERE holders = 0 LIMIT ?", max(1, most // _RELEASED)
    ):
        if tx.run("DELETE FROM links WHERE position = ?", position):  # else another sweeper was faster
            deleted += 1 + release(tx, parent)
    return deleted
