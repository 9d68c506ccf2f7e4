"""Search of 100,000 passages beside the same words in plain SQL, and beside the same vectors in memory."""

import random
import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from gpt_oss_server.embeddings import Embeddings
from gpt_oss_server.stores.documents.unembedded import Unembedded
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.database import Database
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.stores.vector_stores import Entry, Passage, Ranking, VectorStore
from tests.doubles.postgres import running_postgres

pytestmark = pytest.mark.benchmark
PASSAGES, FILES, WORDS, QUERIES = 100_000, 1_000, 60, 60
DIMENSION = 768
ENDINGS = ("er", "ung", "el", "at", "ion", "ark", "ül", "é", "ost", "ine")


def vocabulary(size: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    heads = ["".join(draw.choices("bcdfghklmnprstvz", k=2)) + draw.choice("aeiou") for _ in range(size)]
    return [f"{head}{draw.choice(ENDINGS)}{number % 97}x" for number, head in enumerate(heads)]


ZIPF = tuple(accumulate(1 / (rank + 2) for rank in range(30_000)))


def common(draw: random.Random, words: Sequence[str], count: int) -> list[str]:
    """Words by Zipf's law."""
    return draw.choices(words, cum_weights=ZIPF[: len(words)], k=count)


async def fill(stores: VectorStores, texts: Sequence[str], per_file: int) -> None:
    await stores.put(VectorStore("vs", "", 0, 0))
    entries = [Entry(f"file_{at}", f"{at}.txt", 0, 800, 0, True) for at in range(0, len(texts), per_file)]
    await stores.attach("vs", entries)
    while (claimed := await stores.claim(600.0)) is not None:
        first = int(claimed.entry.file_id[5:])
        some = texts[first : first + per_file]
        await stores.add(claimed, [Passage(at, text) for at, text in enumerate(some)], 600.0)
        await stores.finish(claimed)


async def test_a_search_of_100_000_passages_beside_plain_sql(tmp_path: Path) -> None:
    draw, words = random.Random(1), vocabulary(30_000, 1)
    texts = [" ".join(common(draw, words, WORDS)) for _ in range(PASSAGES)]
    database = SqliteDatabase(tmp_path / "store.sqlite")
    stores = VectorStores(database)
    began = time.process_time()
    await fill(stores, texts, PASSAGES // FILES)
    size, seconds = sum(map(len, texts)) / 1e6, time.process_time() - began
    print(f"\n{PASSAGES:,} passages, {size:.0f} MB, stored in {seconds:.0f} s of processor time")
    plain = sqlite3.connect(":memory:")
    plain.execute("CREATE VIRTUAL TABLE texts USING fts5(body)")
    plain.executemany("INSERT INTO texts (rowid, body) VALUES (?, ?)", enumerate(texts, 1))
    ours: list[float] = []
    theirs: list[float] = []
    sql = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 10"
    for _ in range(QUERIES):
        query = [*common(draw, words[50:], 3), draw.choice(words)]
        began = time.perf_counter()
        found = await stores.find(["vs"], [" ".join(query)], 10)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        rows = plain.execute(sql, (" OR ".join(f'"{word}"' for word in query),)).fetchall()
        theirs.append(time.perf_counter() - began)
        assert len(found) == len(rows)
    await database.close()
    here, there = (1000 * statistics.median(times) for times in (ours, theirs))
    print(f"median of {QUERIES} searches: {here:.1f} ms; plain SQL: {there:.1f} ms")
    assert here < 3 * there + 10


class Drawn:
    """Embeddings of a model that draws vectors."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(1)
        self.last: Any = None

    async def space(self) -> str:
        return f"drawn {DIMENSION}"

    async def of_queries(self, texts: Sequence[str]) -> Any:
        vectors = self._draw.standard_normal((len(texts), DIMENSION), np.float32)
        self.last = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return self.last


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        yield SqliteDatabase(tmp_path / "store.sqlite")
    else:
        with running_postgres() as server:
            yield PostgresDatabase(server.new_database())


async def test_vectors_of_100_000_passages_beside_a_matrix_in_memory(database: Database) -> None:
    model = Drawn()
    stores, waiting = VectorStores(database, cast(Embeddings, model)), Unembedded(database)
    space, ranking = await model.space(), Ranking(1.0, 0.0, is_chosen=True)
    await fill(stores, [f"passage{number}" for number in range(PASSAGES)], PASSAGES // FILES)
    await waiting.choose(space)
    parts, numbers = [], list[int]()
    while (claimed := await waiting.claim(space, 600.0)) is not None:
        last = 0
        while some := await waiting.passages(claimed, last, 64):
            vectors = await model.of_queries([text for _, text in some])
            parts.append(vectors)
            numbers += [int(text.removeprefix("passage")) for _, text in some]
            await waiting.add(claimed, space, [place for place, _ in some], vectors)
            last = some[-1][0]
        await waiting.finish(claimed, space)
    matrix, times, in_memory, same = np.concatenate(parts), list[float](), list[float](), list[int]()
    for _ in range(QUERIES // 3):
        began = time.perf_counter()
        found = await stores.find(["vs"], ["a query"], 10, None, ranking)
        times.append(time.perf_counter() - began)
        [query] = model.last
        began = time.perf_counter()
        exact = np.argsort(-(matrix @ query))[:10]
        in_memory.append(time.perf_counter() - began)
        texts = {int(hit.passage.text.removeprefix("passage")) for hit in found}
        same.append(len(texts & {numbers[at] for at in exact}))
    await database.close()
    here, there = (1000 * statistics.median(each) for each in (times, in_memory))
    kept = f"{matrix.nbytes / 1e6:.0f} MB of float32 in memory"
    print(f"\n{type(database).__name__}: median {here:.0f} ms; {kept}: {there:.0f} ms")
    print(f"of the exact best 10, {statistics.mean(same):.1f} are among the 10 found")
    assert statistics.mean(same) > 9.5
