"""The table of the kinds of stores.

A new kind needs a module that implements `Store` and `EventLogs`, a row here, and its name in the setting's
row.
"""

from __future__ import annotations

from collections.abc import Callable

from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.base import Store, StoreSize
from gpt_oss_server.stores.completions import MemoryCompletions
from gpt_oss_server.stores.keep import Stores
from gpt_oss_server.stores.kinds.bounds import bounds_of
from gpt_oss_server.stores.kinds.places import sqlite_file
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.stores.memory_events import MemoryEventLogs
from gpt_oss_server.stores.sealing import Sealer, new_secret, saved_secret, server_sealer
from gpt_oss_server.stores.sql.allowances import SqlAllowances
from gpt_oss_server.stores.sql.commands.statistics import statistics
from gpt_oss_server.stores.sql.completions import SqlCompletions
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.secrets import shared_secret
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Sweeper
from gpt_oss_server.stores.sql.traces import SqlTraces

_MOST_IN_MEMORY = 10_000
_BYTES_IN_MEMORY = 512 * 2**20


def stores_of(settings: Settings, responses: Store | None = None) -> Stores:
    """The stores that the settings name, or the caller's own store with event logs in memory."""
    if responses is None:  # compared with None, as an empty store is falsy
        return open_store(settings.store, settings)
    return Stores(responses, _event_logs_in_memory(settings), sealer=server_sealer(settings.sealing_key_file))


def open_store(place: str, settings: Settings) -> Stores:
    """Opens the store at `place`, such as `memory` or `sqlite:FILE`."""
    opens = KINDS.get(place.partition(":")[0])
    if opens is None:
        raise SettingsError(f"store must be {' or '.join(KINDS)}, not {place!r}.")
    return opens(place, settings)


def open_database(place: str) -> Database:
    """The database at `place`, for commands. Raises `SettingsError` for a store that is none."""
    opens = DATABASES.get(place.partition(":")[0])
    if opens is None:
        raise SettingsError(
            f"--store {place} keeps nothing outside of a running server. Name a store: --store sqlite, "
            "--store sqlite:PATH or --store postgres://…"
        )
    return opens(place)


def _in_memory(place: str, settings: Settings) -> Stores:
    if place != "memory":
        raise SettingsError(f"store must be memory without a place, not {place!r}.")
    responses = MemoryStore(
        max_responses=settings.store_max_responses or _MOST_IN_MEMORY,
        max_conversations=settings.store_max_conversations or _MOST_IN_MEMORY,
        max_bytes=settings.store_max_bytes or _BYTES_IN_MEMORY,
        max_age=settings.store_max_age,
        max_conversation_age=settings.store_max_conversation_age,
    )
    completions = MemoryCompletions(most=settings.store_max_responses or _MOST_IN_MEMORY)
    return Stores(
        responses,
        _event_logs_in_memory(settings),
        completions,
        server_sealer(settings.sealing_key_file),
        size=responses.size,
    )


def _event_logs_in_memory(settings: Settings) -> MemoryEventLogs:
    return MemoryEventLogs(
        max_bytes=settings.background_log_max_bytes, max_age=settings.background_log_max_age
    )


def _in_database(database: Database, settings: Settings) -> Stores:
    async def size() -> StoreSize:
        held = await database.read(statistics)
        return StoreSize(held.responses, held.conversations, held.bytes)

    held = Held()
    if settings.sealing_key_file is None:
        # A server that changes from memory to a database continues with its key.
        candidate = saved_secret() or new_secret()
        sealer = Sealer(database.write_now(lambda tx: shared_secret(tx, "sealing", candidate)))
    else:
        sealer = server_sealer(settings.sealing_key_file)
    return Stores(
        SqlStore(database, guard=held.guard),
        logs := SqlEventLogs(database, held, Replica(), lease=settings.background_lease),
        SqlCompletions(database),
        sealer,
        claims=logs,
        allowances=SqlAllowances(database),
        sweeper=Sweeper(database, bounds_of(settings)).repeated(),
        size=size,
        traces=SqlTraces(database),
    )


def _sqlite(place: str) -> Database:
    from gpt_oss_server.stores.sqlite.database import SqliteDatabase

    return SqliteDatabase(sqlite_file(place))


def _postgres(place: str) -> Database:
    from gpt_oss_server.stores.postgres.database import PostgresDatabase

    return PostgresDatabase(place)


DATABASES: dict[str, Callable[[str], Database]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
}
"""The opener of each database, by the part of the setting before the first colon."""

KINDS: dict[str, Callable[[str, Settings], Stores]] = {
    "memory": _in_memory,
    **{kind: lambda place, settings: _in_database(open_database(place), settings) for kind in DATABASES},
}
"""The opener of each kind, by the part of the setting before the first colon."""
