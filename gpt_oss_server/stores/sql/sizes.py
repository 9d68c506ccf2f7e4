"""How much a store holds, in all and of one owner: the statements of one transaction."""

from gpt_oss_server.stores.base import Statistics
from gpt_oss_server.stores.sql.database import Transaction


def statistics(tx: Transaction) -> Statistics:
    [[responses, oldest]] = tx.rows("SELECT COUNT(*), MIN(stored_at) FROM responses")
    return Statistics(
        responses=responses,
        conversations=_number(tx, "SELECT COUNT(*) FROM conversations"),
        turns=_number(tx, "SELECT COUNT(*) FROM links"),
        running=_number(tx, "SELECT COUNT(*) FROM runs WHERE ended_at IS NULL"),
        logs=_number(tx, "SELECT COUNT(*) FROM runs WHERE ended_at IS NOT NULL"),
        bytes=used_bytes(tx),
        log_bytes=log_bytes(tx),
        traces=_number(tx, "SELECT COUNT(*) FROM traces"),
        trace_bytes=trace_bytes(tx),
        oldest=oldest,
    )


def used_bytes(tx: Transaction) -> int:
    """The bytes of all records, links that only children need included."""
    tables = ("responses", "conversations", "links", "completions")
    return sum(_sum(tx, f"SELECT SUM(size) FROM {table}") for table in tables)


def log_bytes(tx: Transaction) -> int:
    """Also of runs that have not ended."""
    return _sum(tx, "SELECT SUM(bytes) FROM runs")


def trace_bytes(tx: Transaction) -> int:
    return _sum(tx, "SELECT SUM(size) FROM traces")


def owner_bytes(tx: Transaction, owner: str) -> int:
    """The bytes of an owner's responses and conversations, with the links of their own turns."""
    responses = (
        "SELECT SUM(responses.size + links.size) FROM responses"
        " JOIN links ON links.position = responses.position WHERE responses.owner = ?"
    )
    conversations = "SELECT SUM(size) FROM conversations WHERE owner = ?"
    parts = (
        "SELECT SUM(links.size) FROM conversations JOIN parts ON parts.conversation = conversations.id"
        " JOIN links ON links.position = parts.position WHERE conversations.owner = ?"
    )
    return sum(_sum(tx, sql, owner) for sql in (responses, conversations, parts))


def owner_completion_bytes(tx: Transaction, owner: str) -> int:
    return _sum(tx, "SELECT SUM(size) FROM completions WHERE owner = ?", owner)


def _number(tx: Transaction, sql: str) -> int:
    [[number]] = tx.rows(sql)
    return int(number)


def _sum(tx: Transaction, sql: str, *values: str) -> int:
    """A sum that is NULL without rows."""
    [[total]] = tx.rows(sql, *values)
    return int(total or 0)
