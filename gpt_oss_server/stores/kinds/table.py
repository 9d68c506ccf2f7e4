"""The kinds of stores. A new one needs its module, a row here, and its name in the row of the setting."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.further import BYTES_IN_MEMORY, shared, stores_on
from gpt_oss_server.stores.kinds.keep import Stores
from gpt_oss_server.stores.kinds.places import sqlite_file
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.sealing import Sealer, new_secret, saved_secret, server_sealer
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sql.responses import SqlTraces
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper

_MOST_IN_MEMORY = 10_000


def open_stores(settings: Settings, responses: Store | None = None) -> Stores:
    """The stores that the settings name, or the caller's own store of responses with all others in memory."""
    if responses is None:  # compared with None, as an empty store may be falsy
        return open_store(settings.store, settings)
    return replace(_in_memory("memory", settings), responses=responses, size=None)


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
        kinds = "--store sqlite, --store sqlite:PATH or --store postgres://…"
        raise SettingsError(
            f"--store {place} keeps nothing outside of a running server. Name a store: {kinds}"
        )
    return opens(place)


def _in_memory(place: str, settings: Settings) -> Stores:
    if place != "memory":
        raise SettingsError(f"store must be memory without a place, not {place!r}.")
    bounds = Bounds.from_settings(settings)
    counts = {name: getattr(bounds, name) or _MOST_IN_MEMORY for name in ("responses", "conversations")}
    database = MemoryDatabase(replace(bounds, **counts, bytes=bounds.bytes or BYTES_IN_MEMORY))
    return stores_on(database, settings, server_sealer(settings.sealing_key_file))


def _in_database(place: str, settings: Settings) -> Stores:
    database = open_database(place)
    if settings.sealing_key_file is None:
        # A server that changes from memory to a database continues with its key.
        candidate = saved_secret() or new_secret()
        sealer = Sealer(database.write_now(partial(shared, "sealing", candidate)))
    else:
        sealer = server_sealer(settings.sealing_key_file)
    stores = stores_on(database, settings, sealer)
    sweeper = Sweeper(database, Bounds.from_settings(settings)).repeated()
    repeated = [sweeper, *stores.repeated]
    return replace(stores, claims=stores.events, repeated=repeated, traces=SqlTraces(database))


def _sqlite(place: str) -> Database:
    from gpt_oss_server.stores.sqlite.database import SqliteDatabase

    return SqliteDatabase(sqlite_file(place))


def _postgres(place: str) -> Database:
    from gpt_oss_server.stores.postgres.database import PostgresDatabase

    return PostgresDatabase(place)


# By the part of the setting before the first colon.
DATABASES: dict[str, Callable[[str], Database]] = {
    "sqlite": _sqlite,
    "postgres": _postgres,
    "postgresql": _postgres,
}
KINDS: dict[str, Callable[[str, Settings], Stores]] = {
    "memory": _in_memory,
    **dict.fromkeys(DATABASES, _in_database),
}
