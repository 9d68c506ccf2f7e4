"""The kinds of stores. A new one needs its module, a row here, and its name in the row of the setting."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.documents.files import SqlFiles
from gpt_oss_server.stores.documents.folder import FileFolder
from gpt_oss_server.stores.documents.vector_stores import SqlVectorStores
from gpt_oss_server.stores.files import Files
from gpt_oss_server.stores.keep import Stores
from gpt_oss_server.stores.kinds.places import sqlite_file
from gpt_oss_server.stores.memory.events import MemoryEventLogs
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sealing import Sealer, new_secret, saved_secret, server_sealer
from gpt_oss_server.stores.sql.allowances import SqlAllowances
from gpt_oss_server.stores.sql.completions import SqlCompletions
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.events import Held, SqlEventLogs
from gpt_oss_server.stores.sql.queues.batches import SqlBatches
from gpt_oss_server.stores.sql.queues.deliveries import SqlDeliveries
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.responses import SqlTraces
from gpt_oss_server.stores.sql.sizes import statistics
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sql.sweeper import Bounds, Sweeper
from gpt_oss_server.stores.vector_stores import VectorStores
from inference.paths import UnknownHome, expanded_path

_MOST_IN_MEMORY = 10_000
_BYTES_IN_MEMORY = 512 * 2**20
_SECONDS = 30.0  # between sweeps of the files


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
    database = MemoryDatabase(replace(bounds, **counts, bytes=bounds.bytes or _BYTES_IN_MEMORY))
    files = _files(database, settings)
    return Stores(
        SqlStore(database),
        MemoryEventLogs(max_bytes=settings.background_log_max_bytes, max_age=settings.background_log_max_age),
        SqlCompletions(database),
        files,
        vectors := SqlVectorStores(database),
        SqlBatches(database),
        _deliveries(database, settings),
        server_sealer(settings.sealing_key_file),
        repeated=[_sweeper(files, vectors)],
        size=partial(database.read, statistics),
    )


def _in_database(place: str, settings: Settings) -> Stores:
    database = open_database(place)
    held = Held()
    if settings.sealing_key_file is None:
        # A server that changes from memory to a database continues with its key.
        candidate = saved_secret() or new_secret()
        sealer = Sealer(database.write_now(partial(_shared, "sealing", candidate)))
    else:
        sealer = server_sealer(settings.sealing_key_file)
    files = _files(database, settings)
    return Stores(
        SqlStore(database, guard=held.guard),
        logs := SqlEventLogs(database, held, Replica(), lease=settings.background_lease),
        SqlCompletions(database),
        files,
        vectors := SqlVectorStores(database),
        SqlBatches(database),
        _deliveries(database, settings),
        sealer,
        claims=logs,
        allowances=SqlAllowances(database),
        repeated=[Sweeper(database, Bounds.from_settings(settings)).repeated(), _sweeper(files, vectors)],
        size=partial(database.read, statistics),
        traces=SqlTraces(database),
    )


def _files(database: Database, settings: Settings) -> SqlFiles:
    """The files of a database, in `--files` or else in the database itself."""
    in_memory = isinstance(database, MemoryDatabase)
    most = settings.files_max_bytes or (_BYTES_IN_MEMORY if in_memory else None)
    if settings.files is None:
        return SqlFiles(database, most=most)
    if in_memory:
        raise SettingsError("--files needs a store that outlives the server: --store sqlite, or postgres://…")
    try:
        folder = expanded_path(settings.files)
    except UnknownHome as error:
        raise SettingsError(f"--files: {error}") from error
    # Each store has a folder of its own, and may delete what it finds there.
    name = database.write_now(partial(_shared, "files", secrets.token_hex(8).encode()))
    return SqlFiles(database, FileFolder(folder / name.decode()), most=most)


def _sweeper(files: Files, vectors: VectorStores) -> Repeated:
    async def sweep() -> None:
        await files.sweep()
        await vectors.sweep()

    return Repeated(sweep, _SECONDS, "Expired files could not be deleted")


def _deliveries(database: Database, settings: Settings) -> SqlDeliveries:
    """Only the operator, or the file of keys, names addresses."""
    return SqlDeliveries(database, enabled=bool(settings.webhook_url or settings.webhook_secret))


def _shared(name: str, candidate: bytes, tx: Transaction) -> bytes:
    """A value that all servers on a database share: the candidate of the first one."""
    sql = "INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
    tx.run(sql, name, candidate)
    [[secret]] = tx.rows("SELECT secret FROM secrets WHERE name = ?", name)
    return bytes(secret)


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
