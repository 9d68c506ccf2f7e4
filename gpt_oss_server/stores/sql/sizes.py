"""How much a store holds, in all and of one owner: the statements of one transaction."""

from gpt_oss_server.stores.base import Statistics
from gpt_oss_server.stores.sql.database import Transaction, Value

# The bytes of all records, links that only children need included.
_TABLES = ("responses", "conversations", "links", "completions")
USED = f"SELECT {' + '.join(f'(SELECT COALESCE(SUM(size), 0) FROM {table})' for table in _TABLES)}"
LOGS = "SELECT SUM(bytes) FROM runs"  # also of runs that have not ended
TRACES = "SELECT SUM(size) FROM traces"


def statistics(tx: Transaction) -> Statistics:
    [[responses, oldest]] = tx.rows("SELECT COUNT(*), MIN(stored_at) FROM responses")
    return Statistics(
        responses=responses,
        conversations=total(tx, "SELECT COUNT(*) FROM conversations"),
        turns=total(tx, "SELECT COUNT(*) FROM links"),
        running=total(tx, "SELECT COUNT(*) FROM runs WHERE ended_at IS NULL"),
        logs=total(tx, "SELECT COUNT(*) FROM runs WHERE ended_at IS NOT NULL"),
        bytes=total(tx, USED),
        log_bytes=total(tx, LOGS),
        traces=total(tx, "SELECT COUNT(*) FROM traces"),
        trace_bytes=total(tx, TRACES),
        oldest=oldest,
    )


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
    return sum(total(tx, sql, owner) for sql in (responses, conversations, parts))


def total(tx: Transaction, sql: str, *values: Value) -> int:
    """A count, or a sum, which is NULL without rows."""
    [[found]] = tx.rows(sql, *values)
    return int(found or 0)
