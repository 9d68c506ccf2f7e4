"""What every database does with vector stores."""

from dataclasses import replace
from math import log
from statistics import mean
from typing import Any

import pytest

from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.vector_stores import Entry, Filter, Passage, VectorStore
from tests.doubles.stored import known

LEASE = 60.0
TEXTS = {
    "tides": "High water is at three. The tides of the harbour are large.",
    "boats": "Boats leave the harbour at high water, and each boat returns.",
    "cooking": "Boil the water, then add rice. Über allem: Geduld.",
    "tokyo": "東京の港には船がたくさんあります。",
}


def entry(name: str, **fields: Any) -> Entry:
    return replace(Entry(f"file_{name}", f"{name}.txt", 1_000, 800, 400, True), **fields)


async def read_all(stores: VectorStores, texts: dict[str, str], *, cut: int = 30) -> None:
    """Reads what waits, in passages that overlap."""
    while (claimed := await stores.claim(LEASE)) is not None:
        text = texts[claimed.entry.file_id.removeprefix("file_")]
        starts = range(0, len(text), cut)
        assert await stores.add(claimed, [Passage(at, text[at : at + cut + 10]) for at in starts], LEASE)
        await stores.finish(claimed)


async def filled(stores: VectorStores, name: str = "vs_1", **attributes: Any) -> None:
    await stores.put(VectorStore(name, "Harbour", 1_000, 1_000))
    entries = [entry(key, attributes=attributes.get(key, {})) for key in TEXTS]
    assert await stores.attach(name, entries)
    await read_all(stores, TEXTS, cut=100)


async def found(stores: VectorStores, query: str, filters: Filter | None = None, *names: str) -> list[str]:
    hits = await stores.find(names or ("vs_1",), [query], 10, filters)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    return [hit.entry.filename.removesuffix(".txt") for hit in hits]


class VectorStoresContract:
    database: Database

    @pytest.fixture
    def stores(self) -> VectorStores:
        return VectorStores(self.database)

    async def test_passages_are_found_by_their_words(self, stores: VectorStores) -> None:
        await filled(stores)
        assert (await found(stores, "When do the boats leave?"))[0] == "boats"
        assert await found(stores, "uber GEDULD") == ["cooking"]
        assert await found(stores, "東京の船") == ["tokyo"]
        assert set(await found(stores, "high water")) == {"tides", "boats", "cooking"}
        assert await found(stores, "the") == await found(stores, "the the")
        assert await found(stores, 'zebra" OR water*') == await found(stores, "or water")
        assert await found(stores, "zebra") == await found(stores, "") == []

    async def test_scores_are_bm25_of_the_store_alone(self, stores: VectorStores) -> None:
        await filled(stores)
        before = await stores.find(["vs_1"], ["harbour"], 10)
        assert {hit.entry.filename for hit in before} == {"tides.txt", "boats.txt"}
        [rare] = await stores.find(["vs_1"], ["rice"], 10)
        weight, lengths = log((4 - 1 + 0.5) / (1 + 0.5)), (12, 11, 9, 15)
        bm25 = weight * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 9 / mean(lengths)))
        assert rare.score == pytest.approx(bm25 / (bm25 + 4))
        await filled(stores, "vs_2")
        assert await stores.find(["vs_1"], ["harbour"], 10) == before

    async def test_the_text_of_a_file_is_whole(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000))
        await stores.attach("vs_1", [entry("tokyo"), entry("tides")])
        await read_all(stores, TEXTS, cut=7)
        for name in ("tokyo", "tides"):
            assert known(await stores.text(["vs_0", "vs_1"], f"file_{name}"))[1] == TEXTS[name]
        assert await stores.text(["vs_1"], "file_boats") is None

    @pytest.mark.parametrize(
        ("filters", "names"),
        [
            (Filter("eq", "lang", ["en"]), {"tides", "boats"}),
            (Filter("ne", "lang", ["en"]), {"cooking"}),
            (Filter("in", "lang", ["en", "de"]), {"tides", "boats", "cooking"}),
            (Filter("nin", "lang", ["en", "de"]), set()),
            (Filter("gt", "year", [2_025]), {"boats"}),
            (Filter("lte", "year", [2_025]), {"tides"}),
            (Filter("eq", "old", [True]), {"tides"}),
            (Filter("eq", "old", ["True"]), set()),
            (Filter("and", parts=[Filter("eq", "lang", ["en"]), Filter("gte", "year", [2_026])]), {"boats"}),
            (
                Filter("or", parts=[Filter("eq", "lang", ["de"]), Filter("lt", "year", [2_026])]),
                {"tides", "cooking"},
            ),
        ],
        ids=str,
    )
    async def test_filters_are_conditions_on_attributes(
        self, stores: VectorStores, filters: Filter, names: set[str]
    ) -> None:
        tides, boats = {"lang": "en", "year": 2_025, "old": True}, {"lang": "en", "year": 2_026.5}
        await filled(stores, tides=tides, boats=boats, cooking={"lang": "de"})
        assert set(await found(stores, "water", filters)) == names
        await stores.set_attributes("vs_1", "file_tides", {"lang": "fr"})
        assert "tides" not in await found(stores, "water", Filter("eq", "lang", ["en"]))

    async def test_attributes_that_change_while_a_file_is_read_stay(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "Harbour", 1_000, 1_000))
        assert await stores.attach("vs_1", [entry("tides"), entry("boats")])
        for error in (None, ("unsupported_file", "No.")):
            claimed = known(await stores.claim(LEASE))
            assert await stores.set_attributes("vs_1", claimed.entry.file_id, {"area": "north"})
            await stores.finish(claimed, error)
            kept = known(await stores.entry("vs_1", claimed.entry.file_id))
            assert (kept.attributes, kept.error) == ({"area": "north"}, error)

    async def test_a_file_that_leaves_is_found_no_more(self, stores: VectorStores) -> None:
        await filled(stores)
        used = await stores.used_bytes()
        assert used == sum(len(text.encode()) for text in TEXTS.values())
        assert await stores.detach("vs_1", "file_boats") is True
        assert await stores.detach("vs_1", "file_boats") is False
        assert set(await found(stores, "harbour water")) == {"tides", "cooking"}
        await stores.attach("vs_1", [entry("tides")])  # again, with another text
        await read_all(stores, {"tides": "Nothing is left of it."})
        assert await found(stores, "harbour") == []
        assert await found(stores, "left") == ["tides"]

    async def test_what_a_deleted_store_has_left_is_swept(self, stores: VectorStores) -> None:
        await filled(stores)
        await filled(stores, "vs_2")
        assert await stores.delete("vs_1") is True
        assert await stores.delete("vs_1") is False
        assert await stores.get("vs_1") is None
        assert await found(stores, "water") == []
        assert await stores.sweep() == len(TEXTS)
        assert await stores.sweep() == 0
        assert await found(stores, "rice", None, "vs_1", "vs_2") == ["cooking"]

    async def test_a_store_expires_after_days_without_use(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000, days=0))
        assert await stores.get("vs_1") is None
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000, days=1))
        assert await stores.get("vs_1") is not None
        assert await stores.sweep() == 0

    async def test_a_use_is_written_once_a_minute(self, stores: VectorStores) -> None:
        store = VectorStore("vs_1", "Harbour", 1_000, 1_000, days=1)
        await stores.put(store)
        for now, written in ((1_059, 1_000), (1_060, 1_060)):
            await stores.used(store, now)
            assert known(await stores.get("vs_1")).last_active_at == written

    async def test_an_owner_finds_its_own_stores_alone(self, stores: VectorStores) -> None:
        alice, bob = stores.of("alice"), stores.of("bob")
        await filled(alice)
        assert await bob.get("vs_1") is None
        assert await bob.page(None, 9, newest_first=True) == []
        assert await bob.attach("vs_1", [entry("spam")]) is False
        assert await found(bob, "water") == []
        assert await bob.text(["vs_1"], "file_tides") is None
        assert await bob.entry("vs_1", "file_tides") is None
        assert await bob.detach("vs_1", "file_tides") is await bob.delete("vs_1") is False
        assert (await bob.used_bytes(), await found(alice, "rice")) == (0, ["cooking"])

    async def test_one_process_reads_a_file_at_a_time(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000))
        await stores.attach("vs_1", [entry("tides")])
        first = known(await stores.claim(0.0))  # whose process dies
        await stores.add(first, [Passage(0, "half of it")], 0.0)
        second = known(await stores.claim(LEASE))
        assert await stores.claim(LEASE) is None
        assert await stores.add(first, [Passage(0, "too late")], LEASE) is False
        await stores.finish(first)
        await stores.add(second, [Passage(0, "all of it")], LEASE)
        await stores.finish(second)
        kept = known(await stores.text(["vs_1"], "file_tides"))
        assert (kept[0].status, kept[1]) == ("completed", "all of it")

    async def test_a_file_that_ends_each_process_is_given_up(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000))
        await stores.attach("vs_1", [entry("bomb"), entry("tides"), entry("boats")])
        for name in ("bomb", "tides", "boats"):  # each before the second try of another
            claimed = known(await stores.claim(0.0))
            assert claimed.entry.file_id == f"file_{name}"
            if name != "bomb":
                await stores.finish(claimed)
        for _ in range(4):
            assert await stores.claim(0.0) is not None
        assert await stores.claim(0.0) is None
        failed = known(await stores.entry("vs_1", "file_bomb"))
        assert (failed.status, known(failed.error)[0]) == ("failed", "server_error")

    async def test_a_file_that_is_given_back_was_not_tried(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000))
        await stores.attach("vs_1", [entry("tides")])
        for _ in range(9):
            claimed = known(await stores.claim(LEASE))
            assert await stores.add(claimed, [Passage(0, "half of it")], LEASE)
            await stores.give_back(claimed)
            assert await stores.add(claimed, [Passage(9, "too late")], LEASE) is False

    async def test_files_are_listed_and_counted_by_batch_and_status(self, stores: VectorStores) -> None:
        await stores.put(VectorStore("vs_1", "", 1_000, 1_000))
        await stores.attach("vs_1", [entry(str(n), batch="b" if n % 2 else "a") for n in range(5)])

        async def names(after: str | None = None, **wanted: Any) -> list[str] | None:
            how: dict[str, Any] = {"newest_first": False, "status": None, "batch": "", **wanted}
            listed = await stores.entries("vs_1", after, 9, **how)
            return None if listed is None else [each.file_id[5:] for each in listed]

        assert await names() == ["0", "1", "2", "3", "4"]
        assert await names("file_1", batch="a") == ["2", "4"]
        assert await names("file_3", newest_first=True) == ["2", "1", "0"]
        assert await names("file_9") is None
        await stores.cancel("vs_1", "b")
        assert await stores.batch("vs_1", "b") == {"cancelled": 2}
        assert await names(status="cancelled") == ["1", "3"]
        assert known(await stores.get("vs_1")).counts == {"in_progress": 3, "cancelled": 2}
