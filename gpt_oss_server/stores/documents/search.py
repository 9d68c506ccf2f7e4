"""Search of vector stores: by words, and where the server has embeddings, by vectors.

Takes the ids of an owner's stores and texts to find. Fuses both rankings by rank, and has the best passages
reranked where the server can. Returns passages, the best first.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gpt_oss_server.embeddings import Embeddings, EndpointFailed, Reranker
from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.stores.documents.rows import ENTRY, condition, entry_of
from gpt_oss_server.stores.sql.database import Database, Transaction, Value
from gpt_oss_server.stores.sql.owned import LIVE, Owned
from gpt_oss_server.stores.vector_stores import Filter, Found, Passage, Ranking
from tools.words import words_of_query

if TYPE_CHECKING:
    from gpt_oss_server.embeddings import Vectors

_HALF = 4.0  # the BM25 that is shown as a score of one half
_POOL = 50  # passages of each ranking that are fused
_RERANKED = 30  # of the best that a reranker orders
_FLAT = 60  # how little the first ranks differ, as is usual for reciprocal rank fusion
_ROWS = 64  # of vectors that are read at once
_log = logging.getLogger(__name__)
_Ranked = list[tuple[int, float]]  # passages with scores, the best first


class SearchedStores(Owned):
    def __init__(
        self, database: Database, embeddings: Embeddings | None = None, reranker: Reranker | None = None
    ) -> None:
        super().__init__(database)
        self.embeddings = embeddings
        self._reranker = reranker

    async def find(
        self,
        store_ids: Sequence[str],
        queries: Sequence[str],
        most: int,
        filters: Filter | None = None,
        ranking: Ranking | None = None,
    ) -> list[Found]:
        """The best passages of all these stores, with scores from 0 to 1; unknown stores have none."""
        ranking, queries = ranking or Ranking(), [query for query in queries if query.strip()]
        words, space, vectors = words_of_query(" ".join(queries)), "", None
        if self.embeddings is not None and ranking.embedding_weight and queries:
            try:
                space = await self.embeddings.space()
                vectors = await self.embeddings.of_queries(queries)
            except EndpointFailed as error:
                if ranking.is_chosen:
                    raise StoreUnavailable(f"The texts cannot be compared by vectors. {error}") from error
                _log.warning("A search was by words alone. %s", error)

        def work(tx: Transaction) -> list[Found]:
            named = (self._position(tx, store_id) for store_id in dict.fromkeys(store_ids))
            positions = [position for position in named if position]
            if vectors is None:
                by_words = _by_words(tx, positions, words, pool, filters)
                ranked = [(passage, score / (score + _HALF)) for passage, score in by_words]
            else:
                weight = ranking.text_weight
                rankings = [(weight, _by_words(tx, positions, words, pool, filters))] if weight else []
                weight = ranking.embedding_weight / len(vectors)
                of_vectors = _by_vectors(tx, positions, space, vectors, pool, filters)
                ranked = _fused([*rankings, *((weight, each) for each in of_vectors)])
            return [_found(tx, passage, score) for passage, score in ranked[:count]]

        pool, count = max(_POOL, most), max(_RERANKED, most) if self._reranker else most
        found = await self.database.read(work)
        if self._reranker is not None and ranking.reranks and found:
            found = await self._reranked(self._reranker, " ".join(queries), found)
        return [each for each in found if each.score >= ranking.least][:most]

    async def _reranked(self, reranker: Reranker, query: str, found: list[Found]) -> list[Found]:
        try:
            scores = await reranker.scores(query, [each.passage.text for each in found])
        except EndpointFailed as error:
            _log.warning("The passages of a search were not reranked. %s", error)
            return found
        again = [Found(each.entry, each.passage, score) for each, score in zip(found, scores, strict=True)]
        return sorted(again, key=lambda each: -each.score)

    def _position(self, tx: Transaction, store_id: str) -> int:
        """Of a store's row; 0, where nothing is, if the owner has no such store."""
        which = ("position", "vector_stores", store_id, LIVE)
        return self._find(tx, lambda _, position: int(position), *which) or 0


def _by_words(
    tx: Transaction, stores: Sequence[int], words: Sequence[str], most: int, filters: Filter | None
) -> _Ranked:
    ranked: _Ranked = []
    for store in stores if words else ():
        among, values = "", list[Value]()
        if filters is not None:
            matching, values = condition(filters)
            among = (
                "SELECT passages.position FROM passages JOIN entries ON entries.position = passages.entry"
                f" WHERE entries.store = ? AND {matching}"
            )
            values = [store, *values]
        ranked += tx.texts.search(store, words, among, values, most)
    return sorted(ranked, key=lambda found: (-found[1], found[0]))[:most]


def _by_vectors(
    tx: Transaction, stores: Sequence[int], space: str, queries: Vectors, most: int, filters: Filter | None
) -> list[_Ranked]:
    """A ranking for each query, by cosine."""
    from gpt_oss_server.stores.documents.vectors import nearest

    blocks = (block for store in stores for block in _blocks(tx, store, space, filters))
    return nearest(blocks, queries, most)


def _blocks(tx: Transaction, store: int, space: str, filters: Filter | None) -> Iterator[bytes]:
    matching, values = ("", list[Value]()) if filters is None else condition(filters)
    joined = " JOIN entries ON entries.position = vectors.entry" if matching else ""
    sql = (
        f"SELECT vectors.position, vectors.body FROM vectors{joined} WHERE vectors.store = ?"
        f" AND vectors.space = ? AND vectors.position > ?{f' AND {matching}' if matching else ''}"
        " ORDER BY vectors.position LIMIT ?"
    )
    last = 0
    while rows := tx.rows(sql, store, space, last, *values, _ROWS):
        last = rows[-1][0]
        yield from (body for _, body in rows)


def _fused(rankings: Sequence[tuple[float, _Ranked]]) -> _Ranked:
    """By the weighted reciprocals of their ranks; the score of a passage that is first in all is 1."""
    scores: defaultdict[int, float] = defaultdict(float)
    total = sum(weight for weight, _ in rankings)
    for weight, ranked in rankings:
        for rank, (passage, _) in enumerate(ranked):
            scores[passage] += weight / total * (_FLAT + 1) / (_FLAT + 1 + rank)
    return sorted(scores.items(), key=lambda found: (-found[1], found[0]))


def _found(tx: Transaction, passage: int, score: float) -> Found:
    sql = (
        f"SELECT start, passages.body, {ENTRY} FROM passages"
        " JOIN entries ON entries.position = passages.entry WHERE passages.position = ?"
    )
    [[start, text, *row]] = tx.rows(sql, passage)
    return Found(entry_of(*row), Passage(int(start), text.decode()), float(score))
