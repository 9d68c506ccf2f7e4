"""Conversations in tables: the statements of one transaction. It must not know threads or the event loop.

A conversation holds the link of its last part, and each link its parent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpt_oss_server.stores.base import Append, ConversationPart, Item, StoredConversation
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.sql.codec import (
    decode_addition,
    encode_addition,
    encode_items,
    from_bytes,
    key_of,
    to_bytes,
)
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.items import end_of_conversation, part_with
from gpt_oss_server.stores.sql.links import insert_link, release
from gpt_oss_server.stores.sql.responses import add_items, item_places

_COLUMNS = "id, created_at, version, metadata, owner"
Added = tuple[int, int | None, Addition, int]  # position, parent, addition and size of a new link


def put_conversation(
    tx: Transaction, conversation: StoredConversation, parts: Sequence[ConversationPart]
) -> list[Added]:
    delete_conversation(tx, key_of(conversation.id))
    sql = (
        "INSERT INTO conversations (id, created_at, changed_at, version, tip, size, metadata, owner)"
        " VALUES (?, ?, {now}, ?, NULL, 0, ?, ?)"
    )
    key, metadata = key_of(conversation.id), to_bytes(dict(conversation.metadata))
    tx.run(sql, key, conversation.created_at, conversation.version, metadata, conversation.owner)
    return _extend(tx, conversation.id, conversation.owner, None, parts)


def get_conversation(tx: Transaction, owner: str, conversation_id: str) -> StoredConversation | None:
    sql = f"SELECT {_COLUMNS} FROM conversations WHERE id = ? AND owner = ?"
    rows = tx.rows(sql, key_of(conversation_id), owner)
    return _record(conversation_id, rows[0]) if rows else None


def read_parts(tx: Transaction, owner: str, conversation_id: str) -> tuple[ConversationPart, ...] | None:
    if end_of_conversation(tx, owner, conversation_id) is None:
        return None
    sql = (
        "SELECT parts.items, links.body FROM parts JOIN links ON links.position = parts.position"
        " WHERE parts.conversation = ? ORDER BY parts.position"
    )
    rows = tx.rows(sql, key_of(conversation_id))
    return tuple(ConversationPart(tuple(from_bytes(items)), decode_addition(body)) for items, body in rows)


def append_parts(tx: Transaction, owner: str, append: Append) -> tuple[tuple[Item, ...], list[Added]] | None:
    """The items with their final ids and the new links; None: no such conversation."""
    key = key_of(append.conversation_id)
    changed = _change(tx, key, owner)  # first: other appends to this conversation wait here
    if changed is None:
        return None

    parts = list(append.unique(lambda item_id: part_with(tx, key, owner, item_id) is not None))
    links = _extend(tx, append.conversation_id, owner, changed[0], parts)
    return tuple(item for part in parts for item in part.items), links


def set_metadata(
    tx: Transaction, owner: str, conversation_id: str, metadata: Mapping[str, Any]
) -> StoredConversation | None:
    changes = "metadata = ?, version = version + 1, changed_at = {now}"
    sql = f"UPDATE conversations SET {changes} WHERE id = ? AND owner = ? RETURNING {_COLUMNS}"
    rows = tx.rows(sql, to_bytes(dict(metadata)), key_of(conversation_id), owner)
    return _record(conversation_id, rows[0]) if rows else None


def rewrite_conversation(
    tx: Transaction, owner: str, conversation_id: str, version: int, parts: Sequence[ConversationPart]
) -> list[Added] | None:
    """The new links; None where the conversation no longer exists or has another version."""
    key = key_of(conversation_id)
    changed = _change(tx, key, owner, version)
    if changed is None:
        return None
    _clear(tx, key, changed[0])
    tx.run("UPDATE conversations SET tip = NULL, size = 0 WHERE id = ?", key)
    return _extend(tx, conversation_id, owner, None, parts)


def delete_conversation(tx: Transaction, key: str, owner: str | None = None) -> bool:
    """Deletes a conversation of this owner; without one, of any owner."""
    sql = "DELETE FROM conversations WHERE id = ? AND owner = COALESCE(?, owner) RETURNING tip"
    rows = tx.rows(sql, key, owner)
    for [tip] in rows:
        _clear(tx, key, tip)
    return bool(rows)


def _change(tx: Transaction, key: str, owner: str, version: int | None = None) -> tuple[int | None] | None:
    """Counts a change and returns the tip; None: the owner has no such conversation of this version."""
    sql = "UPDATE conversations SET version = version + 1, changed_at = {now} WHERE id = ? AND owner = ?"
    rows = tx.rows(f"{sql} AND version = COALESCE(?, version) RETURNING tip", key, owner, version)
    return (rows[0][0],) if rows else None


def _extend(
    tx: Transaction, conversation_id: str, owner: str, tip: int | None, parts: Sequence[ConversationPart]
) -> list[Added]:
    """Adds the parts. The tip's holder becomes its child, so that its count stays."""
    key, size = key_of(conversation_id), 0
    links: list[Added] = []
    for part in parts:
        body = encode_addition(part.added)
        parent, tip = tip, insert_link(tx, tip, body)
        items, places = encode_items(part.items)
        sql = "INSERT INTO parts (position, conversation, items, places) VALUES (?, ?, ?, ?)"
        tx.run(sql, tip, key, items, places)
        add_items(tx, item_places(part.items), tip, owner)
        size += len(items)
        links.append((tip, parent, part.added, len(body)))
    if links:
        tx.run("UPDATE conversations SET tip = ?, size = size + ? WHERE id = ?", tip, size, key)
    return links


def _clear(tx: Transaction, key: str, tip: int | None) -> None:
    tx.run("DELETE FROM items WHERE position IN (SELECT position FROM parts WHERE conversation = ?)", key)
    tx.run("DELETE FROM parts WHERE conversation = ?", key)
    release(tx, tip)


def _record(conversation_id: str, row: tuple[Any, ...]) -> StoredConversation:
    _, created_at, version, metadata, owner = row
    return StoredConversation(conversation_id, created_at, from_bytes(metadata), version, owner)
