"""What a store holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.sweeper import used_bytes


@dataclass(frozen=True, slots=True)
class Statistics:
    responses: int
    conversations: int
    turns: int  # links: of responses, of conversations, and of deleted ones that children need
    running: int  # background runs
    logs: int  # of background runs that have ended
    bytes: int  # of all but the logs
    log_bytes: int
    oldest: float | None  # when the oldest response was stored


def statistics(tx: Transaction) -> Statistics:
    [[responses, oldest]] = tx.rows("SELECT COUNT(*), MIN(stored_at) FROM responses")
    [[conversations]] = tx.rows("SELECT COUNT(*) FROM conversations")
    [[turns]] = tx.rows("SELECT COUNT(*) FROM links")
    [[running]] = tx.rows("SELECT COUNT(*) FROM runs WHERE ended_at IS NULL")
    [[logs, log_bytes]] = tx.rows(
        "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM runs WHERE ended_at IS NOT NULL"
    )
    return Statistics(responses, conversations, turns, running, logs, used_bytes(tx), int(log_bytes), oldest)
