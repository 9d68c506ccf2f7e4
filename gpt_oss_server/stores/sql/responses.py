"""Responses in tables: the statements of one transaction. It must not know threads or the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpt_oss_server.stores.base import Item, StoredResponse
from gpt_oss_server.stores.sql.codec import (
    decode_addition,
    encode_addition,
    encode_items,
    from_bytes,
    key_of,
    to_bytes,
)
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.links import hold, insert_link, link_number, release

ItemPlaces = Mapping[str, int | None]
"""Places in the input or the part, by the keys of items."""


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response, ready for its rows: it is encoded once, however often its transaction runs."""

    id: str
    parent: int | None
    added: bytes
    session: bytes
    body: bytes
    places: bytes
    items: ItemPlaces
    trace: bytes
    owner: str

    @classmethod
    def of(cls, stored: StoredResponse, owner: str) -> EncodedResponse:
        head = b"[" + to_bytes(stored.response) + b","
        input_items, places = encode_items(stored.input_items, len(head))
        return cls(
            id=key_of(stored.id),
            parent=link_number(stored.parent),
            added=encode_addition(stored.added),
            session=stored.session.encode("utf-8", "surrogatepass"),
            body=head + input_items + b"," + to_bytes(dict(stored.results)) + b"]",
            places=places,
            items=item_places(stored.input_items, stored.response["output"]),
            trace=stored.trace,
            owner=owner,
        )


def put_response(tx: Transaction, encoded: EncodedResponse) -> int:
    """Stores or replaces a response and returns its position."""
    hold(tx, encoded.parent)
    position = insert_link(tx, encoded.parent, encoded.added)
    if not _insert(tx, encoded, position):
        delete_response(tx, encoded.id)
        _insert(tx, encoded, position)
    return position


def _insert(tx: Transaction, encoded: EncodedResponse, position: int) -> bool:
    """Stores a response whose link is in the table, unless one of its id exists."""
    sql = (
        "INSERT INTO responses (id, position, stored_at, session, size, body, places, owner)"
        " VALUES (?, ?, {now}, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
    )
    content = (encoded.session, len(encoded.body), encoded.body, encoded.places, encoded.owner)
    is_new = tx.run(sql, encoded.id, position, *content)
    if is_new:
        add_items(tx, encoded.items, position, encoded.owner)
        if encoded.trace:
            sql = "INSERT INTO traces (id, size, body) VALUES (?, ?, ?)"
            tx.run(sql, encoded.id, len(encoded.trace), encoded.trace)
    return bool(is_new)


def get_response(tx: Transaction, owner: str, response_id: str) -> StoredResponse | None:
    sql = (
        "SELECT responses.body, responses.session, links.parent, links.body FROM responses"
        " JOIN links ON links.position = responses.position WHERE responses.id = ? AND owner = ?"
    )
    if not (rows := tx.rows(sql, key_of(response_id), owner)):
        return None
    [[body, session, parent, added]] = rows
    response, input_items, results = from_bytes(body)
    return StoredResponse(
        response=response,
        input_items=tuple(input_items),
        parent=None if parent is None else str(parent),
        added=decode_addition(added),
        session=session.decode("utf-8", "surrogatepass"),
        results=results,
        owner=owner,
    )


def end_of_response(tx: Transaction, owner: str, response_id: str) -> tuple[int, str] | None:
    """The position at which its history ends, and the key of its tools' sessions."""
    sql = "SELECT position, session FROM responses WHERE id = ? AND owner = ?"
    rows = tx.rows(sql, key_of(response_id), owner)
    return (int(rows[0][0]), rows[0][1].decode("utf-8", "surrogatepass")) if rows else None


def delete_response(tx: Transaction, key: str, owner: str | None = None) -> bool:
    """Deletes a response of this owner; without one, of any owner."""
    sql = "DELETE FROM responses WHERE id = ? AND owner = COALESCE(?, owner) RETURNING position"
    rows = tx.rows(sql, key, owner)
    for [position] in rows:
        tx.run("DELETE FROM items WHERE position = ?", position)
        tx.run("DELETE FROM traces WHERE id = ?", key)
        release(tx, position)
    return bool(rows)


# --- items of responses and conversations ----------------------------------------------------------


def item_places(items: Iterable[Item], output: Iterable[Item] = ()) -> ItemPlaces:
    """The first place of each id among `items`; None for those that only the output has."""
    placed = [(item.get("id"), place) for place, item in enumerate(items)]
    named = [*placed, *((item.get("id"), None) for item in output)]
    keys = [(key_of(item_id), place) for item_id, place in named if isinstance(item_id, str)]
    return dict(reversed(keys))


def add_items(tx: Transaction, items: ItemPlaces, position: int, owner: str) -> None:
    sql = "INSERT INTO items (id, position, owner, place) VALUES (?, ?, ?, ?)"
    tx.run_each(sql, [(key, position, owner, place) for key, place in items.items()])


def find_item(tx: Transaction, owner: str, item_id: str) -> Item | None:
    """The newest with this id."""
    sql = (
        "SELECT responses.body, parts.items FROM items"
        " LEFT JOIN responses ON responses.position = items.position"
        " LEFT JOIN parts ON parts.position = items.position"
        " WHERE items.id = ? AND items.owner = ? ORDER BY items.position DESC LIMIT 1"
    )
    for body, of_part in tx.rows(sql, key_of(item_id), owner):
        if body is None:
            items = from_bytes(of_part)
        else:
            response, input_items, _ = from_bytes(body)
            items = [*input_items, *response["output"]]
        newest: Item = next(item for item in reversed(items) if item.get("id") == item_id)
        return newest
    return None


def find_result(tx: Transaction, owner: str, item_id: str) -> str | None:
    """The newest result of a call with this id."""
    sql = (
        "SELECT responses.body FROM items JOIN responses ON responses.position = items.position"
        " WHERE items.id = ? AND items.owner = ? ORDER BY items.position DESC"
    )
    results = (from_bytes(body)[2].get(item_id) for [body] in tx.rows(sql, key_of(item_id), owner))
    return next((result for result in results if result is not None), None)


# --- traces, which end with their responses --------------------------------------------------------


class SqlTraces:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, response_id: str) -> bytes | None:
        """The packed trace of a response. Check first that the response belongs to the reader."""
        sql = "SELECT body FROM traces WHERE id = ?"
        rows = await self._database.read(lambda tx: tx.rows(sql, key_of(response_id)))
        return bytes(rows[0][0]) if rows else None
