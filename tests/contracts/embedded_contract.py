"""What every database does with the vectors of passages."""

from collections.abc import AsyncIterator

import pytest

from gpt_oss_server.apis.vector_stores.embedding import Embedding
from gpt_oss_server.embeddings import Embeddings
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.documents.unembedded import Unembedded
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.vector_stores import Entry, Filter, Passage, Ranking, VectorStore
from tests.doubles.engines.embeddings_double import EmbeddingsDouble
from tests.doubles.stored import known

LEASE = 60.0
TEXTS = {
    "noon": "A vessel may leave the harbour at noon.",
    "harbour": "The harbour of the harbour master.",
    "rice": "Cook the rice, then add salt.",
    "rules": "Ships and boats: keep to the right.",
}
VECTORS, WORDS = Ranking(1.0, 0.0, is_chosen=True), Ranking(0.0, 1.0, is_chosen=True)


class EmbeddedContract:
    database: Database

    @pytest.fixture
    async def double(self) -> AsyncIterator[EmbeddingsDouble]:
        async with EmbeddingsDouble() as double:
            yield double

    def stores(self, double: EmbeddingsDouble, model: str = "words") -> VectorStores:
        settings = Settings(embeddings=double.url, embeddings_model=model)
        return VectorStores(self.database, Embeddings(settings))

    async def filled(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs", "", 0, 0))
        entries = [Entry(name, f"{name}.txt", 0, 800, 0, True, {"long": len(name) > 4}) for name in TEXTS]
        assert await stores.attach("vs", entries)
        while (claimed := await stores.claim(LEASE)) is not None:
            await stores.add(claimed, [Passage(0, TEXTS[claimed.entry.file_id])], LEASE)
            await stores.finish(claimed)

    async def found(self, stores: VectorStores, query: str, ranking: Ranking | None = None) -> list[str]:
        hits = await stores.find(["vs"], [query], 10, None, ranking)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert all(0 <= hit.score <= 1 for hit in hits)
        return [hit.entry.file_id for hit in hits]

    async def test_words_and_vectors_are_fused_by_rank(self, double: EmbeddingsDouble) -> None:
        stores = self.stores(double)
        await self.filled(stores)
        assert known(await stores.get("vs")).counts == {"in_progress": 4}
        assert await self.found(stores, "boat harbour", VECTORS) == []
        await Embedding(stores, LEASE).embed_all()
        assert known(await stores.get("vs")).counts == {"completed": 4}
        assert await self.found(stores, "meal harbour", WORDS) == ["harbour", "noon"]
        assert (await self.found(stores, "meal", VECTORS))[0] == "rice"
        assert await self.found(stores, "meal harbour") == ["harbour", "noon", "rice", "rules"]
        [first, second, *_] = await stores.find(["vs"], ["harbour"], 10)
        assert (first.entry.file_id, first.score) == ("harbour", 1.0)  # first by words and by vectors
        assert second.score == pytest.approx(61 / 62)
        [*_, last] = await stores.find(["vs"], ["harbour", "meal"], 10, None, VECTORS)
        assert last.entry.file_id == "rules"  # of which no query speaks
        assert await self.found(stores, " ") == []

    async def test_filters_hold_for_vectors_too(self, double: EmbeddingsDouble) -> None:
        stores = self.stores(double)
        await self.filled(stores)
        await Embedding(stores, LEASE).embed_all()
        for ranking in (None, VECTORS, WORDS):
            hits = await stores.find(["vs"], ["boat harbour"], 10, Filter("eq", "long", [True]), ranking)
            assert {hit.entry.file_id for hit in hits} <= {"harbour", "rules"}
            assert hits

    async def test_vectors_of_two_models_are_never_compared(self, double: EmbeddingsDouble) -> None:
        old, new = self.stores(double), self.stores(double, "other")
        await self.filled(old)
        await Embedding(old, LEASE).embed_all()
        assert await self.found(new, "meal", VECTORS) == []
        assert await self.found(new, "rice") == ["rice"]  # by words
        await Embedding(new, LEASE).embed_all()
        assert (await self.found(new, "meal", VECTORS))[0] == "rice"
        assert await self.found(old, "meal", VECTORS) == []
        assert await Unembedded(self.database).claim("words 256", LEASE) is None  # a server of the old model

    async def test_vectors_leave_with_their_file(self, double: EmbeddingsDouble) -> None:
        stores = self.stores(double)
        await self.filled(stores)
        await Embedding(stores, LEASE).embed_all()
        await stores.detach("vs", "rice")
        assert "rice" not in await self.found(stores, "meal", VECTORS)
        await stores.delete("vs")
        await stores.sweep()
        assert await self.database.read(lambda tx: tx.rows("SELECT COUNT(*) FROM vectors")) == [(0,)]

    async def test_another_owner_finds_nothing(self, double: EmbeddingsDouble) -> None:
        stores = self.stores(double)
        await self.filled(stores.of("alice"))
        await Embedding(stores, LEASE).embed_all()
        assert (await self.found(stores.of("alice"), "meal"))[0] == "rice"
        assert await self.found(stores.of("bob"), "meal") == []

    async def test_the_work_of_a_dead_process_is_done_again_once(self, double: EmbeddingsDouble) -> None:
        stores, files = self.stores(double), Unembedded(self.database)
        await self.filled(stores)
        await files.choose("words 256")
        dead = known(await files.claim("words 256", 0.0))
        [(place, _)] = await files.passages(dead, 0, 9)
        some = await known(stores.embeddings).of_passages(["half of it"])
        await files.add(dead, "words 256", [place], some)
        await stores.set_attributes("vs", dead.entry.file_id, {"year": 2026})
        await Embedding(stores, LEASE).embed_all()
        await files.add(dead, "words 256", [place], some)  # too late
        await files.finish(dead, "other")
        assert await self.database.read(lambda tx: tx.rows("SELECT COUNT(*) FROM vectors")) == [(4,)]
        entry = known(await stores.entry("vs", dead.entry.file_id))
        assert (entry.status, dict(entry.attributes)) == ("completed", {"year": 2026})

    async def test_a_cancelled_file_stays_cancelled(self, double: EmbeddingsDouble) -> None:
        stores, files = self.stores(double), Unembedded(self.database)
        await stores.put(VectorStore("vs", "", 0, 0))
        await stores.attach("vs", [Entry("noon", "noon.txt", 0, 800, 0, True, batch="b")])
        await stores.finish(known(await stores.claim(LEASE)))
        await files.choose("words 256")
        claimed = known(await files.claim("words 256", LEASE))
        await stores.cancel("vs", "b")
        assert not await files.hold(claimed, LEASE)
        await files.finish(claimed, "words 256")
        assert await stores.batch("vs", "b") == {"cancelled": 1}

    async def test_without_embeddings_what_waits_for_them_is_completed(
        self, double: EmbeddingsDouble
    ) -> None:
        await self.filled(self.stores(double))
        without = VectorStores(self.database)
        await Embedding(without, LEASE).embed_all()
        assert known(await without.get("vs")).counts == {"completed": 4}
        with_again = self.stores(double)
        await Embedding(with_again, LEASE).embed_all()
        assert (await self.found(with_again, "meal", VECTORS))[0] == "rice"
