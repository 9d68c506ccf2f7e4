"""Responses in tables: the statements of one transaction.

Takes encoded responses, or their ids. Returns rows as records. It must not know threads or the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.stores.base import Item, StoredResponse
from gpt_oss_server.stores.sql.codec import (
    decode_addition,
    encode_addition,
    from_bytes,
    key_of,
    to_bytes,
)
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.links import add_link, number_of, release


@dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response, ready for its rows: it is encoded once, however often its transaction runs."""

    id: str
    parent: int | None
    added: bytes
    session: bytes
    body: bytes
    items: tuple[str, ...]
    owner: str

    @classmethod
    def of(cls, stored: StoredResponse, owner: str) -> EncodedResponse:
        return cls(
            id=key_of(stored.id),
            parent=number_of(stored.parent),
            added=encode_addition(stored.added),
            session=stored.session.encode("utf-8", "surrogatepass"),
            body=to_bytes((stored.response, stored.input_items, dict(stored.results))),
            items=item_keys(stored.items),
            owner=owner,
        )


def put_response(tx: Transaction, given: EncodedResponse) -> int:
    """Stores or replaces a response and returns its position."""
    position = add_link(tx, given.parent, given.added)
    sql = (
        "INSERT INTO responses (id, position, stored_at, session, size, body, owner)"
        " VALUES (?, ?, {now}, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING"
    )
    values = (given.id, position, given.session, len(given.body), given.body, given.owner)
    if not tx.run(sql, *values):
        delete_response(tx, given.id)
        tx.run(sql, *values)
    add_items(tx, given.items, position, given.owner)
    return position


def get_response(tx: Transaction, response_id: str, owner: str) -> StoredResponse | None:
    rows = tx.rows(
        "SELECT responses.body, responses.session, links.parent, links.body FROM responses"
        " JOIN links ON links.position = responses.position WHERE responses.id = ? AND owner = ?",
        key_of(response_id),
        owner,
    )
    if not rows:
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


def end_of_response(tx: Transaction, response_id: str, owner: str) -> tuple[int, str] | None:
    """The position at which its history ends, and the key of its tools' sessions."""
    sql = "SELECT position, session FROM responses WHERE id = ? AND owner = ?"
    rows = tx.rows(sql, key_of(response_id), owner)
    return (int(rows[0][0]), rows[0][1].decode("utf-8", "surrogatepass")) if rows else None


def delete_own_response(tx: Transaction, key: str, owner: str) -> bool:
    is_own = bool(tx.rows("SELECT 1 FROM responses WHERE id = ? AND owner = ?", key, owner))
    return is_own and delete_response(tx, key)


def delete_response(tx: Transaction, key: str) -> bool:
    """Deletes it, whoever the owner is."""
    rows = tx.rows("DELETE FROM responses WHERE id = ? RETURNING position", key)
    for [position] in rows:
        tx.run("DELETE FROM items WHERE position = ?", position)
        release(tx, position)
    return bool(rows)


# --- items of responses and conversations ----------------------------------------------------------


def item_keys(items: Iterable[Item]) -> tuple[str, ...]:
    ids = (item.get("id") for item in items)
    return tuple(dict.fromkeys(key_of(item_id) for item_id in ids if isinstance(item_id, str)))


def add_items(tx: Transaction, keys: Iterable[str], position: int, owner: str) -> None:
    sql = "INSERT INTO items (id, position, owner) VALUES (?, ?, ?)"
    tx.run_each(sql, [(key, position, owner) for key in keys])


def find_item(tx: Transaction, item_id: str, owner: str) -> Item | None:
    """The newest with this id."""
    rows = tx.rows(
        "SELECT responses.body, parts.items FROM items"
        " LEFT JOIN responses ON responses.position = items.position"
        " LEFT JOIN parts ON parts.position = items.position"
        " WHERE items.id = ? AND items.owner = ? ORDER BY items.position DESC LIMIT 1",
        key_of(item_id),
        owner,
    )
    for body, of_part in rows:
        found = from_bytes(of_part) if body is None else _items_in(body)
        newest: Item = next(item for item in reversed(found) if item.get("id") == item_id)
        return newest
    return None


def find_result(tx: Transaction, item_id: str, owner: str) -> str | None:
    """The newest result of a call with this id."""
    rows = tx.rows(
        "SELECT responses.body FROM items JOIN responses ON responses.position = items.position"
        " WHERE items.id = ? AND items.owner = ? ORDER BY items.position DESC",
        key_of(item_id),
        owner,
    )
    results = (from_bytes(body)[2].get(item_id) for [body] in rows)
    return next((result for result in results if result is not None), None)


def _items_in(body: bytes) -> list[dict[str, Any]]:
    response, input_items, _ = from_bytes(body)
    return [*input_items, *response["output"]]
