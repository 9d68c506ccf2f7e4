"""All stores on one database, of whichever kind, and what sweeps the files."""

import secrets
from functools import partial

from gpt_oss_server.embeddings import Embeddings, Reranker
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.documents.files import Content, Files
from gpt_oss_server.stores.documents.folder import FileFolder
from gpt_oss_server.stores.documents.skills import Skills
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.kinds.keep import Stores
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.stores.sql.allowances import Allowances
from gpt_oss_server.stores.sql.completions import Completions
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.events import EventLogs, Held
from gpt_oss_server.stores.sql.queues.batches import Batches
from gpt_oss_server.stores.sql.queues.deliveries import Deliveries
from gpt_oss_server.stores.sql.sizes import statistics
from gpt_oss_server.stores.sql.store import SqlStore
from inference.paths import UnknownHome, expanded_path
from tools.extras import how_to_install

BYTES_IN_MEMORY = 512 * 2**20
_SECONDS = 30.0  # between sweeps of the files


def stores_on(database: Database, settings: Settings, sealer: Sealer) -> Stores:
    held, files = Held(), _files(database, settings)
    embeddings = None if settings.embeddings is None else Embeddings(settings)
    reranker = None if settings.reranker is None else Reranker(settings)
    vectors = VectorStores(database, embeddings, reranker)

    async def sweep() -> None:
        await files.sweep()
        await vectors.sweep()

    # Only the operator, or the file of keys, names addresses.
    told = bool(settings.webhook_url or settings.webhook_secret)
    return Stores(
        responses=SqlStore(database, guard=held.guard),
        events=EventLogs(database, held, lease=settings.background_lease),
        completions=Completions(database),
        files=files,
        skills=Skills(database),
        vector_stores=vectors,
        batches=Batches(database),
        webhooks=Deliveries(database, enabled=told),
        allowances=Allowances(database),
        sealer=sealer,
        repeated=[Repeated(sweep, _SECONDS, "Expired files could not be deleted")],
        size=partial(database.read, statistics),
    )


def _files(database: Database, settings: Settings) -> Files:
    """The files of a database, in `--files` or else in the database itself."""
    in_memory = isinstance(database, MemoryDatabase)
    most = settings.files_max_bytes or (BYTES_IN_MEMORY if in_memory else None)
    if settings.files is None:
        return Files(database, most=most)
    if in_memory:
        raise SettingsError("--files needs a store that outlives the server: --store sqlite, or postgres://…")
    # Each store has a folder of its own, and may delete what it finds there.
    name = database.write_now(partial(shared, "files", secrets.token_hex(8).encode()))
    return Files(database, _content(settings.files, name.decode()), most=most)


def _content(place: str, name: str) -> Content:
    if place.startswith("s3://"):
        try:
            from gpt_oss_server.stores.documents.bucket import FileBucket
        except ImportError as error:
            raise SettingsError(how_to_install(error)) from error
        return FileBucket(f"{place.removesuffix('/')}/{name}")
    try:
        return FileFolder(expanded_path(place) / name)
    except UnknownHome as error:
        raise SettingsError(f"--files: {error}") from error


def shared(name: str, candidate: bytes, tx: Transaction) -> bytes:
    """A value that all servers on a database share: the candidate of the first one."""
    sql = "INSERT INTO secrets (name, secret) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
    tx.run(sql, name, candidate)
    [[secret]] = tx.rows("SELECT secret FROM secrets WHERE name = ?", name)
    return bytes(secret)
