"""Links of chains in a table, and those that were read recently in memory.

A link never changes and its position is never used again, so that a copy in memory stays right, and so does a
whole history: the next turn adds to it without a walk along its chain.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpt_oss_server.stores.chain import Addition, History, Position, UnknownParent, history_of
from gpt_oss_server.stores.sql.codec import decode_addition
from gpt_oss_server.stores.sql.database import Transaction

T = TypeVar("T")
_BYTES = 64 * 2**20  # of the links in memory, and of the histories, which share the links' segments
_TIMES = 10  # as large in memory as in the table: a token takes 4 bytes there, and about 40 here
_AT_ONCE = 256  # links of a chain that one query reads
_CHAIN = (
    "WITH RECURSIVE chain (position, parent, body, depth) AS ("
    " SELECT links.position, links.parent, links.body, 1 FROM links WHERE links.position = ?"
    " UNION ALL SELECT links.position, links.parent, links.body, chain.depth + 1"
    " FROM chain JOIN links ON links.position = chain.parent WHERE chain.depth < ?"
    ") SELECT position, parent, body FROM chain"
)
_RELEASED = 32  # links that one transaction deletes; the sweeper deletes the rest


@dataclass(frozen=True, slots=True)
class Link:
    parent: int | None
    added: Addition
    size: int


class Links:
    """The links of one database. Its methods may be called in any thread."""

    def __init__(self) -> None:
        self._recent = _Recent[Link]()
        self._histories = _Recent[History]()

    def remember(self, position: int, parent: int | None, added: Addition, size: int) -> Link:
        """Keeps a link that is in the table, so that the next turn need not read it."""
        link = Link(parent, added, size * _TIMES)
        self._recent.keep(position, link, link.size)
        return link

    def history(self, tx: Transaction, position: int | None, session: str) -> History:
        """The history of the chain that ends here."""
        chain: list[Addition] = []
        read: dict[int, Link] = {}
        at, size, before = position, 0, None
        while at is not None and (before := self._histories.find(at)) is None:
            link = read.get(at) or self._recent.find(at)
            if link is None:
                read = self._read(tx, at)
                link = read[at]
            chain.append(link.added)
            size += link.size
            at = link.parent
        named = None if position is None else str(position)
        history = history_of(reversed(chain), session=session, position=named, after=before or History())
        if position is not None and chain:
            if at is not None:  # the next turn continues the longer one
                size += self._histories.drop(at)
            self._histories.keep(position, history, size)
        return history

    def _read(self, tx: Transaction, position: int) -> dict[int, Link]:
        return {
            at: self.remember(at, parent, decode_addition(body), len(body))
            for at, parent, body in tx.rows(_CHAIN, position, _AT_ONCE)
        }


class _Recent(Generic[T]):
    """What was used recently, by position, within a bound of bytes."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[T, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def keep(self, position: int, value: T, size: int) -> None:
        with self._lock:
            if position not in self._kept and size < _BYTES:
                self._kept[position] = value, size
                self._bytes += size
                while self._bytes > _BYTES:
                    self._bytes -= self._kept.popitem(last=False)[1][1]

    def find(self, position: int) -> T | None:
        with self._lock:
            if (kept := self._kept.get(position)) is None:
                return None
            self._kept.move_to_end(position)
        return kept[0]

    def drop(self, position: int) -> int:
        """Returns its size."""
        with self._lock:
            size = self._kept.pop(position, (None, 0))[1]
            self._bytes -= size
        return size


def link_number(position: Position | None) -> int | None:
    if position is None:
        return None
    if not position.isdecimal():  # another store's
        raise UnknownParent(position)
    return int(position)


def insert_link(tx: Transaction, parent: int | None, body: bytes) -> int:
    """Adds a link with one holder, its owner. The parent is held already."""
    sql = "INSERT INTO links (parent, holders, size, body) VALUES (?, 1, ?, ?) RETURNING position"
    [[position]] = tx.rows(sql, parent, len(body), body)
    return int(position)


def hold(tx: Transaction, position: int | None) -> None:
    """Raises `UnknownParent` where the link is deleted."""
    sql = "UPDATE links SET holders = holders + 1 WHERE position = ? AND holders > 0"
    if position is not None and not tx.run(sql, position):
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
