"""What a search finds in the Cranfield collection: by words, by vectors, and by both.

    CRANFIELD=DIR EMBEDDINGS=URL pytest -s -m benchmark tests/benchmarks/test_retrieval.py

The folder has `cran.all.1400`, `cran.qry` and `cranqrel`, as the University of Glasgow publishes them. The
queries of odd numbers may be used to choose weights; the figures are of the even ones.
"""

import math
import os
import re
import sqlite3
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpt_oss_server.apis.vector_stores.embedding import Embedding
from gpt_oss_server.embeddings import Embeddings
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.stores.vector_stores import Ranking
from tests.benchmarks.test_vector_stores import fill
from tests.doubles.waiting import until_found

pytestmark = pytest.mark.benchmark
FOLDER, URL = os.environ.get("CRANFIELD"), os.environ.get("EMBEDDINGS")
RANKINGS = {
    "plain FTS5": None,
    "words (BM25)": Ranking(0.0, 1.0, is_chosen=True),
    "vectors": Ranking(1.0, 0.0, is_chosen=True),
    "both, 1 : 1": Ranking(1.0, 1.0, is_chosen=True),
    "both, 2 : 1": Ranking(2.0, 1.0, is_chosen=True),
    "both, 1 : 2": Ranking(1.0, 2.0, is_chosen=True),
}
Judged = Mapping[int, int]  # documents of a query by number, and how relevant they are


def texts(name: str, mark: str) -> list[str]:
    """What follows `mark` in each record of a file."""
    records = re.split(r"^\.I .*$", (Path(str(FOLDER)) / name).read_text("utf-8"), flags=re.MULTILINE)[1:]
    return [" ".join(re.split(rf"^\.{mark}$", each, flags=re.MULTILINE)[-1].split()) for each in records]


def judgements() -> list[dict[int, int]]:
    """The relevance of documents to each query: 4 is a complete answer, 1 of minimum interest."""
    found: list[dict[int, int]] = [{} for _ in range(225)]
    for line in (Path(str(FOLDER)) / "cranqrel").read_text("utf-8").splitlines():
        query, document, code = map(int, line.split())
        if 1 <= code <= 4:
            found[query - 1][document - 1] = 5 - code
    return found


def ndcg(found: Sequence[int], judged: Judged, most: int = 10) -> float:
    def gain(grades: Sequence[int]) -> float:
        return sum((2**grade - 1) / math.log2(at + 2) for at, grade in enumerate(grades[:most]))

    return gain([judged.get(each, 0) for each in found]) / gain(sorted(judged.values(), reverse=True))


def recall(found: Sequence[int], judged: Judged, most: int = 5) -> float:
    return sum(each in judged for each in found[:most]) / len(judged)


@pytest.mark.skipif(not (FOLDER and URL), reason="it needs CRANFIELD=DIR and EMBEDDINGS=URL")
async def test_words_vectors_and_both_in_the_cranfield_collection(tmp_path: Path) -> None:
    documents, queries, judged = texts("cran.all.1400", "W"), texts("cran.qry", "W"), judgements()
    stores = VectorStores(SqliteDatabase(tmp_path / "store"), Embeddings(Settings(embeddings=URL)))
    await fill(stores, documents, 1)
    embedding, began = Embedding(stores, 600.0), time.monotonic()
    embedding.repeated.start()

    await until_found(
        lambda: stores.get("vs"), lambda vs: vs and "in_progress" not in vs.counts, seconds=3_600
    )
    await embedding.repeated.close()
    print(f"\n{len(documents):,} texts got vectors in {time.monotonic() - began:.0f} s")
    plain = sqlite3.connect(":memory:")
    plain.execute("CREATE VIRTUAL TABLE texts USING fts5(body)")
    plain.executemany("INSERT INTO texts (rowid, body) VALUES (?, ?)", enumerate(documents))

    async def best(query: str, ranking: Ranking | None) -> list[int]:
        if ranking is not None:
            hits = await stores.find(["vs"], [query], 10, None, ranking)
            return [int(hit.entry.file_id.removeprefix("file_")) for hit in hits]
        wanted = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        rows = plain.execute("SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 10", (wanted,))
        return [row for [row] in rows]

    figures: dict[str, tuple[float, float]] = {}
    for name, ranking in RANKINGS.items():
        shown: list[str] = []
        for odd in (1, 0):
            found, seconds = {}, []
            for at in range(odd ^ 1, len(queries), 2):
                began = time.perf_counter()
                found[at] = await best(queries[at], ranking)
                seconds.append(time.perf_counter() - began)
            both = [(recall(each, judged[at]), ndcg(each, judged[at])) for at, each in found.items()]
            figures[name] = (statistics.mean(r for r, _ in both), statistics.mean(n for _, n in both))
            shown.append("recall@5 {:.3f}  nDCG@10 {:.3f}".format(*figures[name]))
        median = 1000 * statistics.median(seconds)
        print(f"{name:<13} odd: {shown[0]}   even: {shown[1]}   {median:.0f} ms")
    await stores.database.close()
    assert figures["both, 1 : 1"][1] > max(figures["words (BM25)"][1], figures["vectors"][1]) - 0.02
