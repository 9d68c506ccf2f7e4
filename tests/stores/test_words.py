"""Words of many languages, and how well they find beside plain BM25, on a set that a rule writes.

A topic has three words. Three texts have two of them each, in some form (case, accents, plural, script),
among common words; a query has all three in other forms. Plain BM25 is FTS5 as it comes.
"""

import random
import sqlite3
import statistics
from collections.abc import Callable, Sequence
from math import log2

import pytest

from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.sql.sweeper import Bounds
from gpt_oss_server.stores.vector_stores import Entry, Passage, VectorStore
from tests.doubles.stored import known
from tools.words import words_in, words_of_query

TOPICS, COMMON, LENGTH = 120, 400, 40
FORMS: tuple[Callable[[str], str], ...] = (str, str.upper, str.title, "{}s".format, "{}s,".format)
ACCENTS = str.maketrans("aeou", "äéöü")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The boats' CAFÉS, and a city's cities", ["the", "boat", "cafe", "and", "a", "city", "s", "city"]),
        ("Straße ﬁne x_y 3.14 ①", ["strasse", "fine", "x", "y", "3", "14", "1"]),
        ("東京の港 tokyo", ["東京", "京の", "の港", "tokyo"]),
        ("が 港", ["が", "港"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Привет, мир", ["привет", "мир"]),
        ("x" * 65, []),
        ("analysis bus gas glass", ["analysis", "bus", "gas", "glass"]),
    ],
)
def test_words_of_many_languages(text: str, words: list[str]) -> None:
    assert list(words_in(text)) == words


def test_common_words_count_only_alone() -> None:
    assert words_of_query("What is the tide?") == ["tide"]
    assert words_of_query("to be or not to be") == ["not"]
    assert words_of_query("who is who") == ["who", "is"]


def _written(seed: int) -> tuple[list[str], list[tuple[str, set[int]]]]:
    """The texts, and each query with the numbers of the texts that are wanted."""
    draw = random.Random(seed)

    def word() -> str:
        if draw.random() < 0.15:  # of a script without spaces
            return "".join(chr(draw.randrange(0x4E00, 0x9000)) for _ in range(3))
        return "".join(draw.choice("bdfgklmnprt") + draw.choice("aeiou") for _ in range(3)) + "k"

    def form(word: str) -> str:
        if word > "z":
            return f"之{word}也"  # within a run of other characters
        return draw.choice(FORMS)(word.translate(ACCENTS) if draw.random() < 0.5 else word)

    def among(words: Sequence[str], count: int) -> str:
        mixed = [*words, *draw.choices(common, [1 / (rank + 1) for rank in range(COMMON)], k=count)]
        draw.shuffle(mixed)
        return " ".join(mixed)

    common = [word() for _ in range(COMMON)]
    texts: list[str] = []
    queries: list[tuple[str, set[int]]] = []
    for _ in range(TOPICS):
        topic, first = [word() for _ in range(3)], len(texts)
        texts += [among(list(map(form, draw.sample(topic, 2))), LENGTH) for _ in range(3)]
        queries.append((among(list(map(form, topic)), 3), set(range(first, first + 3))))
    return texts, queries


def _quality(found: Sequence[Sequence[int]], queries: Sequence[tuple[str, set[int]]]) -> tuple[float, float]:
    """Recall@5 and nDCG@10."""
    recalls, gains = [], []
    for texts, (_, wanted) in zip(found, queries, strict=True):
        gain = sum(1 / log2(rank + 2) for rank, text in enumerate(texts[:10]) if text in wanted)
        gains.append(gain / sum(1 / log2(rank + 2) for rank in range(len(wanted))))
        recalls.append(len(wanted & set(texts[:5])) / len(wanted))
    return statistics.mean(recalls), statistics.mean(gains)


async def test_words_find_more_than_plain_bm25() -> None:
    texts, queries = _written(1)
    stores = VectorStores(MemoryDatabase(Bounds()))
    await stores.put(VectorStore("vs", "", 0, 0))
    await stores.attach("vs", [Entry("file_1", "a.txt", 0, 800, 0, True)])
    claimed = known(await stores.claim(60.0))
    await stores.add(claimed, [Passage(at, text) for at, text in enumerate(texts)], 60.0)
    plain = sqlite3.connect(":memory:")
    plain.execute("CREATE VIRTUAL TABLE texts USING fts5(body)")
    plain.executemany("INSERT INTO texts (rowid, body) VALUES (?, ?)", enumerate(texts))
    sql = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT 10"
    ours, theirs = [], []
    for query, _ in queries:
        ours.append([hit.passage.start for hit in await stores.find(["vs"], [query], 10)])
        words = " OR ".join(f'"{word}"' for word in query.replace(",", " ").split())
        theirs.append([row for [row] in plain.execute(sql, (words,))])
    plain.close()
    (recall, ndcg), (plain_recall, plain_ndcg) = _quality(ours, queries), _quality(theirs, queries)
    figures = f"recall@5 {recall:.3f}, plain {plain_recall:.3f}; nDCG@10 {ndcg:.3f}, plain {plain_ndcg:.3f}"
    assert recall > plain_recall + 0.1, figures
    assert ndcg > plain_ndcg + 0.1
    assert recall > 0.95
