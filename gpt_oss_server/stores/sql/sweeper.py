"""The sweeper: deletes what exceeds the store's bounds, in small transactions between those of requests.

The oldest responses, conversations and completions, the logs of runs and the batches that ended long ago, and
the links that no turn needs any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.conversations import delete_conversation
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.links import delete_unheld
from gpt_oss_server.stores.sql.responses import delete_response
from gpt_oss_server.stores.sql.runs import delete_ended, end_abandoned
from gpt_oss_server.stores.sql.sizes import LOGS, TRACES, USED, total

_SECONDS = 30.0  # between sweeps
_AT_ONCE = 20  # what one transaction deletes, so that no write waits for long
_PER_LOOK = 2_000  # entries: a look counts or adds up whole tables, which takes long
_Key = tuple[int, str]  # kind and id


def _statement(sql: str) -> Callable[[Transaction, str], int]:
    return lambda tx, key: tx.run(sql, key)


_delete_ended_batch = _statement("DELETE FROM batches WHERE id = ? AND is_open = 0")
# How an entry of each kind is deleted, its table, and the column by which it is old.
_KINDS: tuple[tuple[Callable[[Transaction, str], int], str, str], ...] = (
    (delete_response, "responses", "stored_at"),
    (delete_conversation, "conversations", "changed_at"),
    (_statement("DELETE FROM completions WHERE id = ?"), "completions", "stored_at"),
    (delete_ended, "runs", "ended_at"),
    (_statement("DELETE FROM traces WHERE id = ?"), "traces", "position"),
    (_delete_ended_batch, "batches", "CASE WHEN is_open = 0 THEN lease_until END"),
)
_RESPONSE, _CONVERSATION, _COMPLETION, _LOG, _TRACE, _BATCH = range(len(_KINDS))
_OLDEST = (  # when it was stored or changed, its kind, id and size
    f"SELECT stored_at, {_RESPONSE}, id, responses.size + links.size FROM responses"
    " JOIN links ON links.position = responses.position ORDER BY stored_at LIMIT ?",
    f"SELECT changed_at, {_CONVERSATION}, id, conversations.size + (SELECT COALESCE(SUM(links.size), 0)"
    " FROM parts JOIN links ON links.position = parts.position WHERE parts.conversation = conversations.id)"
    " FROM conversations ORDER BY changed_at LIMIT ?",
    f"SELECT stored_at, {_COMPLETION}, id, size FROM completions ORDER BY stored_at LIMIT ?",
)
_OLDEST_LOGS = (
    f"SELECT ended_at, {_LOG}, id, bytes FROM runs WHERE ended_at IS NOT NULL ORDER BY ended_at LIMIT ?",
)
_OLDEST_TRACES = (f"SELECT position, {_TRACE}, id, size FROM traces ORDER BY position LIMIT ?",)


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

    @classmethod
    def from_settings(cls, settings: Settings) -> Bounds:
        return cls(
            responses=settings.store_max_responses,
            conversations=settings.store_max_conversations,
            bytes=settings.store_max_bytes,
            age=settings.store_max_age,
            conversation_age=settings.store_max_conversation_age,
            log_bytes=settings.background_log_max_bytes,
            log_age=settings.background_log_max_age,
            trace_bytes=settings.trace_max_bytes,
        )

    def finders(self) -> Iterator[Callable[[Transaction], list[_Key]]]:
        """Each finds entries beyond a bound, the oldest first. They only read, so that no write waits."""
        bounds = (
            (_RESPONSE, self.age, self.responses),
            (_COMPLETION, self.age, self.responses),
            (_CONVERSATION, self.conversation_age, self.conversations),
            (_LOG, self.log_age, None),
            (_BATCH, self.age, None),
        )
        for kind, age, count in bounds:
            if age is not None:
                yield partial(_aged, kind, age)
            if count is not None:
                yield partial(_surplus, kind, count)
        if self.bytes is not None:
            yield partial(_excess, _OLDEST, USED, self.bytes)
        if self.log_bytes is not None:
            yield partial(_excess, _OLDEST_LOGS, LOGS, self.log_bytes)
        if self.trace_bytes is not None:
            yield partial(_excess, _OLDEST_TRACES, TRACES, self.trace_bytes)


def sweep(tx: Transaction, bounds: Bounds) -> None:
    """Deletes all that exceeds the bounds in one transaction, while nothing else uses the store."""
    for find in bounds.finders():
        while keys := find(tx):
            _delete_each(keys, tx)
    while _unheld(tx):
        pass


class Sweeper:
    def __init__(self, database: Database, bounds: Bounds) -> None:
        self._database = database
        self._bounds = bounds

    def repeated(self) -> Repeated:
        return Repeated(self.sweep, _SECONDS, "Old entries could not be deleted")

    async def sweep(self) -> int:
        """Deletes all that exceeds the bounds now, and returns how many entries."""
        deleted = 0
        for find in self._bounds.finders():
            while keys := await self._database.read(find):
                count = await self._delete(keys)
                deleted += count
                if not count:  # another server deletes the same
                    break
        for step in (end_abandoned, _unheld):
            while count := await self._database.write(step):
                deleted += count
                await asyncio.sleep(0)  # waiting writes come first
        return deleted

    async def _delete(self, keys: Sequence[_Key]) -> int:
        """By id, so that servers that sweep simultaneously delete nothing that only one of them should."""
        deleted = 0
        for at in range(0, len(keys), _AT_ONCE):
            some = keys[at : at + _AT_ONCE]
            deleted += await self._database.write(partial(_delete_each, some))
            await asyncio.sleep(0)  # waiting writes come first
        return deleted


def _delete_each(keys: Sequence[_Key], tx: Transaction) -> int:
    return sum(_KINDS[kind][0](tx, key) for kind, key in keys)


def _unheld(tx: Transaction) -> int:
    return delete_unheld(tx, 10 * _AT_ONCE)


def _aged(kind: int, age: float, tx: Transaction) -> list[_Key]:
    _, table, column = _KINDS[kind]
    sql = f"SELECT id FROM {table} WHERE {column} <= {{now}} - ? ORDER BY {column} LIMIT ?"
    return [(kind, key) for [key] in tx.rows(sql, age, _PER_LOOK)]


def _surplus(kind: int, most: int, tx: Transaction) -> list[_Key]:
    _, table, column = _KINDS[kind]
    if (surplus := total(tx, f"SELECT COUNT(*) FROM {table}") - most) <= 0:
        return []
    sql = f"SELECT id FROM {table} ORDER BY {column} LIMIT ?"
    return [(kind, key) for [key] in tx.rows(sql, min(surplus, _PER_LOOK))]


def _excess(oldest: Sequence[str], used: str, most: int, tx: Transaction) -> list[_Key]:
    """Some of the oldest beyond the bound: with a response, deleted parents may go, so that fewer suffice."""
    if (excess := total(tx, used) - most) <= 0:
        return []
    keys: list[_Key] = []
    for _, kind, key, size in sorted(row for sql in oldest for row in tx.rows(sql, _PER_LOOK))[:_PER_LOOK]:
        if excess <= 0:
            break
        keys.append((kind, key))
        excess -= size
    return keys[: 1 + len(keys) // 8]
