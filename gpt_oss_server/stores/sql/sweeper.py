"""The sweeper: deletes what exceeds the store's bounds, in small transactions between those of requests.

Takes the bounds. Deletes the oldest responses and conversations, the logs of runs that ended long ago, and
the links that no turn needs any more. It runs beside the requests and never within one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.completions import delete_completion
from gpt_oss_server.stores.sql.conversations import delete_conversation
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.links import delete_unheld
from gpt_oss_server.stores.sql.responses import delete_response
from gpt_oss_server.stores.sql.runs import delete_ended, end_abandoned
from gpt_oss_server.stores.sql.traces import delete_surplus_traces

_SECONDS = 30.0  # between sweeps
_AT_ONCE = 20  # what one transaction deletes, so that no write waits for long
_Delete = Callable[[Transaction, str], bool]
_Kind = tuple[str, str, _Delete, float | None, int | None]
_DELETIONS = (delete_response, delete_conversation, delete_completion)
_OLDEST = (  # when it was stored or changed, its kind, id and size
    "SELECT stored_at, 0, id, responses.size + links.size FROM responses"
    " JOIN links ON links.position = responses.position ORDER BY stored_at LIMIT ?",
    "SELECT changed_at, 1, id, conversations.size + (SELECT COALESCE(SUM(links.size), 0) FROM parts"
    " JOIN links ON links.position = parts.position WHERE parts.conversation = conversations.id)"
    " FROM conversations ORDER BY changed_at LIMIT ?",
    "SELECT stored_at, 2, id, size FROM completions ORDER BY stored_at LIMIT ?",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a store keeps at most; None: no limit. Ages in seconds."""

    responses: int | None = None
    conversations: int | None = None
    bytes: int | None = None
    age: float | None = None
    conversation_age: float | None = None
    log_bytes: int | None = None
    log_age: float | None = None
    trace_bytes: int | None = None


class Sweeper:
    def __init__(self, database: Database, bounds: Bounds) -> None:
        self._database = database
        self._bounds = bounds
        self._repeated = Repeated(self.sweep, _SECONDS, "Old entries could not be deleted")

    def start(self) -> None:
        """Call it in the event loop."""
        self._repeated.start()

    async def close(self) -> None:
        await self._repeated.close()

    async def sweep(self) -> int:
        """Deletes all that exceeds the bounds now, and returns how many entries."""
        deleted = 0
        for step in self._steps():
            while count := await self._database.write(step):
                deleted += count
                await asyncio.sleep(0)  # waiting writes come first
        return deleted

    def _steps(self) -> Iterator[Callable[[Transaction], int]]:
        """Each deletes at most a few entries in a transaction, and returns how many."""
        most = self._bounds
        kinds: tuple[_Kind, ...] = (
            ("responses", "stored_at", delete_response, most.age, most.responses),
            ("completions", "stored_at", delete_completion, most.age, most.responses),
            ("conversations", "changed_at", delete_conversation, most.conversation_age, most.conversations),
        )
        for table, column, delete, age, count in kinds:
            yield partial(_aged, table, column, delete, age)
            yield partial(_surplus, table, column, delete, count)
        yield self._by_bytes
        yield partial(_aged, "runs", "ended_at", delete_ended, most.log_age)
        yield self._logs_by_bytes
        if most.trace_bytes is not None:
            yield partial(delete_surplus_traces, most_bytes=most.trace_bytes, at_once=_AT_ONCE)
        yield end_abandoned
        yield _unheld

    def _by_bytes(self, tx: Transaction) -> int:
        excess = 0 if self._bounds.bytes is None else used_bytes(tx) - self._bounds.bytes
        if excess <= 0:
            return 0
        oldest = sorted(row for sql in _OLDEST for row in tx.rows(sql, _AT_ONCE))
        deleted = 0
        for _, kind, key, size in oldest[:_AT_ONCE]:
            deleted += _DELETIONS[kind](tx, key)
            excess -= size
            if excess <= 0:
                break
        return deleted

    def _logs_by_bytes(self, tx: Transaction) -> int:
        most = self._bounds.log_bytes
        if most is None or _logged_bytes(tx) <= most:
            return 0
        sql = "SELECT id FROM runs WHERE ended_at IS NOT NULL ORDER BY ended_at LIMIT 1"
        return sum(delete_ended(tx, key) for [key] in tx.rows(sql))


def _unheld(tx: Transaction) -> int:
    return delete_unheld(tx, 10 * _AT_ONCE)


def used_bytes(tx: Transaction) -> int:
    """The bytes of all records, links that only children need included."""
    [[responses]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM responses")
    [[conversations]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM conversations")
    [[links]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM links")
    [[completions]] = tx.rows("SELECT COALESCE(SUM(size), 0) FROM completions")
    return int(responses + conversations + links + completions)


def _logged_bytes(tx: Transaction) -> int:
    [[logged]] = tx.rows("SELECT COALESCE(SUM(bytes), 0) FROM runs WHERE ended_at IS NOT NULL")
    return int(logged)


def _aged(table: str, column: str, delete: _Delete, age: float | None, tx: Transaction) -> int:
    if age is None:
        return 0
    sql = f"SELECT id FROM {table} WHERE {column} <= {{now}} - ? ORDER BY {column} LIMIT ?"
    return sum(delete(tx, key) for [key] in tx.rows(sql, age, _AT_ONCE))


def _surplus(table: str, column: str, delete: _Delete, most: int | None, tx: Transaction) -> int:
    if most is None:
        return 0
    [[count]] = tx.rows(f"SELECT COUNT(*) FROM {table}")
    if count <= most:
        return 0
    sql = f"SELECT id FROM {table} ORDER BY {column} LIMIT ?"
    return sum(delete(tx, key) for [key] in tx.rows(sql, min(count - most, _AT_ONCE)))
