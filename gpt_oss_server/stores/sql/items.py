"""Items by their places in the bytes of a part or a response, so that a page reads no more than itself.

Rows of earlier versions know no places; they are read whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpt_oss_server.stores.pages import Item, ItemPage, UnknownItem, Wanted, as_slice, find_place
from gpt_oss_server.stores.sealing import unpacked_tokens
from gpt_oss_server.stores.sql.codec import from_bytes, key_of
from gpt_oss_server.stores.sql.database import Transaction

_WIDTH = 4  # bytes of a place
_AT_ONCE = 100  # parts that one query finds


@dataclass(frozen=True, slots=True)
class _Holder:
    """A row that holds items: one part of a conversation, or a response with its input."""

    column: str
    table: str
    position: int
    count: int | None  # None: its places are unknown

    def read(self, tx: Transaction, places: range) -> list[Item]:
        if not places:
            return []
        starts = unpacked_tokens(self._bytes(tx, "places", _WIDTH * places.start, _WIDTH * (len(places) + 1)))
        encoded = self._bytes(tx, self.column, starts[0], starts[-1] - 1 - starts[0])
        items: list[Item] = from_bytes(b"[" + encoded + b"]")
        return items

    def read_all(self, tx: Transaction) -> list[Item]:
        [[body]] = tx.rows(f"SELECT {self.column} FROM {self.table} WHERE position = ?", self.position)
        content = from_bytes(body)
        return list(content[1] if self.table == "responses" else content)

    def some(self, tx: Transaction, wanted: Wanted, after: int | None, most: int) -> list[Item]:
        """Up to `most` items after the one at place `after`, in the order of the page."""
        if self.count is not None:
            return wanted.ordered(self.read(tx, wanted.places(self.count, after, most)))
        items = self.read_all(tx)
        return wanted.ordered(items[as_slice(wanted.places(len(items), after, most))])

    def place(self, tx: Transaction, item_id: str) -> int:
        """Where an item is that this row may hold. Raises `UnknownItem`."""
        if self.count is None:
            return find_place(self.read_all(tx), item_id)
        sql = "SELECT place FROM items WHERE id = ? AND position = ? AND place IS NOT NULL"
        rows = tx.rows(sql, key_of(item_id), self.position)
        if not rows:
            raise UnknownItem(item_id)
        return int(rows[0][0])

    def _bytes(self, tx: Transaction, column: str, start: int, length: int) -> bytes:
        sql = f"SELECT substr({column}, ?, ?) FROM {self.table} WHERE position = ?"
        [[content]] = tx.rows(sql, start + 1, length, self.position)
        return bytes(content)


def page_of_conversation(
    tx: Transaction, owner: str, conversation_id: str, wanted: Wanted
) -> ItemPage | None:
    """A page of a conversation's items; None: the owner has no such conversation. Raises `UnknownItem`."""
    if end_of_conversation(tx, owner, conversation_id) is None:
        return None
    key, items, at, place = key_of(conversation_id), list[Item](), None, None
    if wanted.after is not None:
        holder = part_with(tx, key, owner, wanted.after)
        if holder is None:
            raise UnknownItem(wanted.after)
        at, place = holder.position, holder.place(tx, wanted.after)
        items += holder.some(tx, wanted, place, wanted.most + 1)
    for holder in _parts(tx, key, at, wanted):
        if len(items) > wanted.most:
            break
        items += holder.some(tx, wanted, None, wanted.most + 1 - len(items))
    return wanted.page(items)


def page_of_input(tx: Transaction, owner: str, response_id: str, wanted: Wanted) -> ItemPage | None:
    """A page of a response's input; None: the owner has no such response. Raises `UnknownItem`."""
    sql = "SELECT position, length(places) FROM responses WHERE id = ? AND owner = ?"
    rows = tx.rows(sql, key_of(response_id), owner)
    if not rows:
        return None
    holder = _Holder("body", "responses", rows[0][0], _count(rows[0][1]))
    place = None if wanted.after is None else holder.place(tx, wanted.after)
    return wanted.page(holder.some(tx, wanted, place, wanted.most + 1))


def item_of_conversation(tx: Transaction, owner: str, conversation_id: str, item_id: str) -> Item | None:
    if (holder := part_with(tx, key_of(conversation_id), owner, item_id)) is None:
        return None
    place = holder.place(tx, item_id)
    if holder.count is None:
        return holder.read_all(tx)[place]
    [item] = holder.read(tx, range(place, place + 1))
    return item


def end_of_conversation(tx: Transaction, owner: str, conversation_id: str) -> tuple[int | None] | None:
    """The position at which its history ends; None: the owner has no such conversation."""
    rows = tx.rows("SELECT tip FROM conversations WHERE id = ? AND owner = ?", key_of(conversation_id), owner)
    return (rows[0][0],) if rows else None


def part_with(tx: Transaction, key: str, owner: str, item_id: str) -> _Holder | None:
    """The part of the owner's conversation that has the item."""
    # Two steps: a planner could look at all parts of the conversation for a join.
    named = tx.rows("SELECT position FROM items WHERE id = ? AND owner = ?", key_of(item_id), owner)
    for [position] in named:
        sql = "SELECT length(places) FROM parts WHERE position = ? AND conversation = ?"
        for [length] in tx.rows(sql, position, key):
            return _part(position, length)
    return None


def _parts(tx: Transaction, key: str, at: int | None, wanted: Wanted) -> Iterator[_Holder]:
    """The parts of a conversation after the one at this position, in the order of the page."""
    order, sign = ("DESC", "<") if wanted.newest_first else ("ASC", ">")
    while True:
        after = "" if at is None else f" AND position {sign} ?"
        sql = f"SELECT position, length(places) FROM parts WHERE conversation = ?{after}"
        values = (key,) if at is None else (key, at)
        rows = tx.rows(f"{sql} ORDER BY position {order} LIMIT ?", *values, _AT_ONCE)
        for position, length in rows:
            yield _part(position, length)
        if len(rows) < _AT_ONCE:
            return
        at = rows[-1][0]


def _part(position: int, length: int | None) -> _Holder:
    return _Holder("items", "parts", position, _count(length))


def _count(length: int | None) -> int | None:
    return None if length is None else length // _WIDTH - 1
