"""Opens the stores that `--store` names: in memory, in SQLite or in Postgres."""

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
    if responses is not None:  # compared with None, as an empty store may be falsy
        return replace(_in_memory(settings), responses=responses, size=None)
    return _in_memory(settings) if settings.store == "memory" else _in_database(settings)


def open_database(place: str) -> Database:
    """The database at `place`, such as `sqlite:FILE`. Raises `SettingsError` for a store that is none."""
    if place == "memory":
        kinds = "--store sqlite, --store sqlite:PATH or --store postgres://…"
        raise SettingsError(
            f"--store {place} keeps nothing outside of a running server. Name a store: {kinds}"
        )
    if place.startswith("sqlite"):
        from gpt_oss_server.stores.sqlite.database import SqliteDatabase

        return SqliteDatabase(sqlite_file(place))
    from gpt_oss_server.stores.postgres.database import PostgresDatabase

    return PostgresDatabase(place)


def _in_memory(settings: Settings) -> Stores:
    bounds = Bounds.from_settings(settings)
    counts = {name: getattr(bounds, name) or _MOST_IN_MEMORY for name in ("responses", "conversations")}
    database = MemoryDatabase(replace(bounds, **counts, bytes=bounds.bytes or BYTES_IN_MEMORY))
    return stores_on(database, settings, server_sealer(settings.sealing_key_file))


def _in_database(settings: Settings) -> Stores:
    database = open_database(settings.store)
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
