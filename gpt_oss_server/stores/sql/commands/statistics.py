"""What a store holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.sweeper import used_bytes
from gpt_oss_server.stores.sql.traces import trace_bytes


@dataclass(frozen=True, slots=True)
class Statistics:
    responses: int
    conversations: int
    turns: int  # links: of responses, of conversations, and of deleted ones that children need
    running: int  # background runs
    logs: int  # of background runs that have ended
    bytes: int  # of all but the logs and the traces
    log_bytes: int
    traces: int
    trace_bytes: int
    oldest: float | None  # when the oldest response was stored


def statistics(tx: Transaction) -> Statistics:
    [[responses, oldest]] = tx.rows("SELECT COUNT(*), MIN(stored_at) FROM responses")
    [[conversations]] = tx.rows("SELECT COUNT(*) FROM conversations")
    [[turns]] = tx.rows("SELECT COUNT(*) FROM links")
    [[running]] = tx.rows("SELECT COUNT(*) FROM runs WHERE ended_at IS NULL")
    [[logs, log_bytes]] = tx.rows(
        "SELECT COUNT(*), COALESCE(SUM(bytes), 0) FROM runs WHERE ended_at IS NOT NULL"
    )
    [[traces]] = tx.rows("SELECT COUNT(*) FROM traces")
    return Statistics(
        responses=responses,
        conversations=conversations,
        turns=turns,
        running=running,
        logs=logs,
        bytes=used_bytes(tx),
        log_bytes=int(log_bytes),
        traces=traces,
        trace_bytes=trace_bytes(tx),
        oldest=oldest,
    )
