"""A server of embeddings and of a reranker: a text's vector counts its words, by their meanings."""

import math
import zlib
from collections.abc import Sequence
from typing import Any

from tests.doubles.engines.http_double import HttpDouble, Refusal

DIMENSION = 256
_MEANINGS = (("boat", "boats", "ship", "vessel"), ("water", "sea", "tide", "tides"), ("rice", "meal", "food"))
_MEANING = {word: meaning[0] for meaning in _MEANINGS for word in meaning}


def words(text: str) -> list[str]:
    found = ("".join(filter(str.isalnum, word)).lower() for word in text.split())
    return [_MEANING.get(word, word) for word in found if word]


def vector(text: str, dimension: int = DIMENSION) -> list[float]:
    counts = [0.0] * dimension
    for word in words(text):
        counts[zlib.crc32(word.encode()) % dimension] += 1.0
    return counts


class EmbeddingsDouble(HttpDouble):
    def __init__(self, model: str = "words", dimension: int = DIMENSION) -> None:
        super().__init__()
        self.name, self.dimension = model, dimension
        self.longest = 10_000  # characters of a text that the model reads
        self.logits = False  # whether the reranker's scores have no bounds

    @property
    def texts(self) -> list[str]:
        """All that vectors were asked for."""
        return [text for path, body in self.requests if path == "/v1/embeddings" for text in body["input"]]

    def answer(self, path: str, body: Any) -> Any:
        if path == "/v1/models":
            return {"object": "list", "data": [{"id": self.name}]}
        if path == "/v1/rerank":
            scores = [self._relevance(body["query"], text) for text in body["documents"]]
            results = [{"index": at, "relevance_score": score} for at, score in enumerate(scores)]
            return {"results": sorted(results, key=lambda each: -each["relevance_score"])}
        if any(len(text) > self.longest for text in body["input"]):
            message = "input is too large to process. increase the physical batch size"
            raise Refusal(500, {"error": {"code": 500, "message": message, "type": "server_error"}})
        rows = [self._row(at, text) for at, text in enumerate(body["input"])]
        return {"object": "list", "model": body["model"], "data": rows[::-1]}

    def _row(self, at: int, text: str) -> dict[str, Any]:
        return {"object": "embedding", "index": at, "embedding": vector(text, self.dimension)}

    def _relevance(self, query: str, text: str) -> float:
        """The share of the text's words that the query has."""
        asked, said = set(words(query)), words(text)
        share = sum(word in asked for word in said) / max(len(said), 1)
        return math.log((share + 0.001) / (1.001 - share)) if self.logits else share


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other))
