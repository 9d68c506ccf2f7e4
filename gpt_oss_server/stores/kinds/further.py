"""The stores beside those of responses: files, vector stores, batches, and events for webhooks.

Takes an open database, of whichever kind. Returns them, and what sweeps them.
"""

import secrets
from dataclasses import dataclass
from functools import partial

from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.documents.files import SqlFiles
from gpt_oss_server.stores.documents.folder import FileFolder
from gpt_oss_server.stores.documents.vector_stores import SqlVectorStores
from gpt_oss_server.stores.files import Files
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.queues.batches import SqlBatches
from gpt_oss_server.stores.sql.queues.deliveries import SqlDeliveries
from gpt_oss_server.stores.vector_stores import VectorStores
from inference.paths import UnknownHome, expanded_path

BYTES_IN_MEMORY = 512 * 2**20
_SECONDS = 30.0  # between sweeps of the files


@dataclass(frozen=True, slots=True)
class Further:
    stores: tuple[SqlFiles, SqlVectorStores, SqlBatches, SqlDeliveries]
    sweeper: Repeated


def further_stores(database: Database, settings: Settings) -> Further:
    files, vectors = _files(database, settings), SqlVectorStores(database)
    # Only the operator, or the file of keys, names addresses.
    told = SqlDeliveries(database, enabled=bool(settings.webhook_url or settings.webhook_secret))
    return Further((files, vectors, SqlBatches(database), told), _sweeper(files, vectors))


def _files(database: Database, settings: Settings) -> SqlFiles:
    """The files of a database, in `--files` or else in the database itself."""
    in_memory = isinstance(database, MemoryDatabase)
    most = settings.files_max_bytes or (BYTES_IN_MEMORY if in_memory else None)
    if settings.files is None:
        return SqlFiles(database, most=most)
    if in_memory:
        raise SettingsError("--files needs a store that outlives the server: --store sqlite, or postgres://…")
    try:
        folder = expanded_path(settings.files)
    except UnknownHome as error:
        raise SettingsError(f"--files: {error}") from error
    # Each store has a folder of its own, and may delete what it finds there.
    name = database.write_now(partial(shared, "files", secrets.token_hex(8).encode()))
    return SqlFiles(database, FileFolder(folder / name.decode()), most=most)


def _sweeper(files: Files, vectors: VectorStores) -> Repeated:
    async def sweep() -> None:
        await files.sweep()
        await vectors.sweep()

    return Repeated(sweep, _SECONDS, "Expired files could not be deleted")


def shared(name: str, candidate: bytes, tx: Transaction) -> bytes:
    """A value that all servers on a database share: the candidate of the first one."""
    sql = "INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
    tx.run(sql, name, candidate)
    [[secret]] = tx.rows("SELECT secret FROM secrets WHERE name = ?", name)
    return bytes(secret)
