"""How much an owner has stored: the statements of one transaction."""

from __future__ import annotations

from gpt_oss_server.stores.sql.database import Transaction


def bytes_of_owner(tx: Transaction, owner: str) -> int:
    """The bytes of an owner's responses and conversations, with the links of their own turns."""
    [[responses]] = tx.rows(
        "SELECT COALESCE(SUM(responses.size + links.size), 0) FROM responses"
        " JOIN links ON links.position = responses.position WHERE responses.owner = ?",
        owner,
    )
    [[conversations]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM conversations WHERE owner = ?", owner)
    [[parts]] = tx.rows(
        "SELECT COALESCE(SUM(links.size), 0) FROM conversations"
        " JOIN parts ON parts.conversation = conversations.id"
        " JOIN links ON links.position = parts.position WHERE conversations.owner = ?",
        owner,
    )
    return int(responses + conversations + parts)


def completion_bytes_of_owner(tx: Transaction, owner: str) -> int:
    [[found]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM completions WHERE owner = ?", owner)
    return int(found)
