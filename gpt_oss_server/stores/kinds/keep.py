"""What lasts: all stores of a server, and one owner's view of them. It must not know which kind they are."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gpt_oss_server.stores.base import Conversations, Responses, Statistics, Store
from gpt_oss_server.stores.documents.files import Files
from gpt_oss_server.stores.documents.skills import Skills
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.stores.sql.allowances import Allowances
from gpt_oss_server.stores.sql.completions import Completions
from gpt_oss_server.stores.sql.events import EventLogs
from gpt_oss_server.stores.sql.queues.batches import Batches
from gpt_oss_server.stores.sql.queues.deliveries import Deliveries
from gpt_oss_server.stores.sql.responses import SqlTraces


@dataclass(frozen=True, slots=True)
class Keep:
    """What lasts, as one owner sees it."""

    owner: str
    responses: Responses
    conversations: Conversations
    completions: Completions
    files: Files
    skills: Skills
    vector_stores: VectorStores
    events: EventLogs  # of background runs
    webhooks: Deliveries
    sealer: Sealer
    traces: SqlTraces | None  # None: traces end with the process

    async def used_bytes(self) -> int:
        """About how much the owner has stored."""
        return await self.used_besides_files() + await self.files.used_bytes()

    async def used_besides_files(self) -> int:
        of_turns = await self.responses.used_bytes() + await self.completions.used_bytes()
        return of_turns + await self.vector_stores.used_bytes()


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of one server."""

    responses: Store  # also conversations
    events: EventLogs  # of background runs
    completions: Completions
    files: Files
    skills: Skills
    vector_stores: VectorStores
    batches: Batches
    webhooks: Deliveries
    allowances: Allowances
    sealer: Sealer
    claims: EventLogs | None = None  # None: no other process can continue a run
    repeated: list[Repeated] = field(default_factory=list)  # work that no request waits for
    size: Callable[[], Awaitable[Statistics]] | None = None  # what the store holds now; None: unknown
    traces: SqlTraces | None = None  # None: traces end with the process

    def of(self, owner: str) -> Keep:
        store = self.responses.of(owner) if owner else self.responses  # as opened, it is that of the owner ""
        files, skills, vectors = self.files.of(owner), self.skills.of(owner), self.vector_stores.of(owner)
        parts = (store, store, self.completions.of(owner), files, skills, vectors, self.events.of(owner))
        return Keep(owner, *parts, self.webhooks.of(owner), self.sealer.of(owner), self.traces)

    def start(self) -> None:
        """Begins work that no request waits for."""
        for work in self.repeated:
            work.start()

    async def close(self) -> None:
        for work in self.repeated:
            await work.close()
        await self.responses.close()
