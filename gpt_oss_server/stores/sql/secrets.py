"""Secrets that all servers of a database share."""

from __future__ import annotations

from gpt_oss_server.stores.sql.database import Transaction


def shared_secret(tx: Transaction, name: str, candidate: bytes) -> bytes:
    """The secret of this name; the first server's candidate becomes it."""
    sql = "INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
    tx.run(sql, name, candidate)
    [[secret]] = tx.rows("SELECT secret FROM secrets WHERE name = ?", name)
    return bytes(secret)
