"""The index of the passages of a store: a row for each word of a passage, ranked by BM25 as FTS5 does."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log

from gpt_oss_server.stores.sql.database import Transaction, Value

_LEAST = 1e-6  # the weight of a word that most passages have


class PostgresTexts:
    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def create(self, store: int) -> None:
        """The rows of all stores are in one table."""

    def add(self, store: int, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        sql = "INSERT INTO postings (store, word, passage, count, length) VALUES (?, ?, ?, ?, ?)"
        rows = (
            (store, word, passage, count, len(words))
            for passage, words in passages
            for word, count in Counter(words).items()
        )
        self._tx.run_each(sql, rows)

    def remove(self, store: int, passages: Iterable[int]) -> None:
        self._tx.run_each("DELETE FROM postings WHERE passage = ?", ((passage,) for passage in passages))

    def drop(self, store: int) -> None:
        self._tx.run("DELETE FROM postings WHERE store = ?", store)

    def search(
        self, store: int, words: Sequence[str], among: str, values: Sequence[Value], most: int
    ) -> list[tuple[int, float]]:
        sql = "SELECT CAST(SUM(passages) AS BIGINT), CAST(SUM(words) AS BIGINT) FROM entries WHERE store = ?"
        [[total, length]] = self._tx.rows(sql, store)
        sql = "SELECT word, COUNT(*) FROM postings WHERE store = ? AND word = ANY(?) GROUP BY word"
        counts: dict[str, int] = dict(self._tx.rows(sql, store, list(words)))
        if not counts or not total:
            return []
        weights = [max(log((total - n + 0.5) / (n + 0.5)), _LEAST) for n in counts.values()]
        sql = (
            "SELECT passage, SUM(weight * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length / ?))) AS score"
            " FROM postings JOIN UNNEST(CAST(? AS TEXT[]), CAST(? AS DOUBLE PRECISION[]))"
            " AS wanted (word, weight) USING (word)"
            f" WHERE store = ?{f' AND passage IN ({among})' if among else ''}"
            " GROUP BY passage ORDER BY score DESC, passage LIMIT ?"
        )
        return self._tx.rows(sql, length / total, list(counts), weights, store, *values, most)
