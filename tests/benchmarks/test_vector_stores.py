"""Search of 100,000 passages beside the same words in plain SQL, on one machine in one run."""

import random
import sqlite3
import statistics
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.stores.vector_stores import Entry, Passage, VectorStore
from tools.words import words_of_query

pytestmark = pytest.mark.benchmark
PASSAGES, FILES, WORDS, QUERIES = 100_000, 1_000, 60, 60
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
        found = await stores.search(["vs"], words_of_query(" ".join(query)), 10)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        rows = plain.execute(sql, (" OR ".join(f'"{word}"' for word in query),)).fetchall()
        theirs.append(time.perf_counter() - began)
        assert len(found) == len(rows)
    await database.close()
    here, there = (1000 * statistics.median(times) for times in (ours, theirs))
    print(f"median of {QUERIES} searches: {here:.1f} ms; plain SQL: {there:.1f} ms")
    assert here < 3 * there + 10
