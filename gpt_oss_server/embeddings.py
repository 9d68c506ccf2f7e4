"""Vectors of texts, and how relevant texts are to a query, from endpoints that the operator names.

Takes texts. Returns unit vectors from an OpenAI-compatible `/v1/embeddings`, or scores from a `/v1/rerank`,
or raises an `EndpointFailed`. It must not know what the texts belong to.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpt_oss_server.settings import Settings, SettingsError
from inference.engine import InferenceError, ModelNotFound
from inference.options import EngineOptions
from inference.remote.connection import Caller, Refused, parse_address

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]  # a row for each text

AT_ONCE = 16  # texts of one request
_SECONDS = 120.0  # for an answer; a CPU takes seconds for a batch of passages
_QUERY_SECONDS = 10.0
_TOO_LONG = (400, 413, 422, 500)  # what servers answer to a text that their model cannot read
_SHORT = 64  # characters that every model reads
_log = logging.getLogger(__name__)


class EndpointFailed(Exception):
    """A sentence for the operator."""


class Endpoint:
    def __init__(self, flag: str, url: str, model: str | None, key: str | None) -> None:
        """Raises `SettingsError`."""
        self._flag, self._model = flag, model
        try:
            address = parse_address(url, "")
        except ModelNotFound as error:
            problem = f"{flag} must be the base URL of a server, such as http://127.0.0.1:8081/v1"
            raise SettingsError(f"{problem}. A key belongs into {flag}-key.") from error
        self._caller = Caller(address, EngineOptions(engine_key=key))

    async def model(self) -> str:
        """The operator's name for it, or the first model that the endpoint lists."""
        if self._model is None:
            answer = await self.asked(self._caller.get("/v1/models"), _QUERY_SECONDS)
            try:
                self._model = str(answer["data"][0]["id"])
            except (TypeError, KeyError, IndexError) as error:
                problem = f"{self._flag}: {self._caller.url}/v1/models names no model"
                raise EndpointFailed(f"{problem}. Name it with {self._flag}-model.") from error
        return self._model

    async def post(self, path: str, body: Mapping[str, Any], seconds: float) -> Any:
        """Raises `EndpointFailed`, or `Refused` for a status that may be the texts' fault."""
        return await self.asked(self._caller.post(path, {"model": await self.model(), **body}), seconds)

    async def asked(self, answer: Any, seconds: float) -> Any:
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError as error:
            raise self.failed(f"it did not answer within {seconds:g} s") from error
        except InferenceError as error:
            if isinstance(error, Refused) and error.status in _TOO_LONG:
                raise
            raise EndpointFailed(f"{self._flag}: {error}") from error

    def failed(self, why: str) -> EndpointFailed:
        return EndpointFailed(f"{self._flag}: {self._caller.url} cannot be used: {why}.")


class Embeddings:
    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError`."""
        assert settings.embeddings is not None
        chosen = (settings.embeddings_model, settings.embeddings_key)
        self._endpoint = Endpoint("--embeddings", settings.embeddings, *chosen)
        # Values of settings lose the space at their end.
        prefixes = (settings.embeddings_query_prefix, settings.embeddings_passage_prefix)
        self._before_query, self._before_passage = (f"{prefix} " if prefix else "" for prefix in prefixes)
        self._space = ""
        self._dimension = 0
        self._most = 2**31  # characters of a text that the model reads, as far as is known

    async def space(self) -> str:
        """What made the vectors: those of two spaces cannot be compared. One request finds it out."""
        if not self._space:
            self._dimension = (await self._vectors(["gpt-oss"], _QUERY_SECONDS)).shape[1]
            before = f" {self._before_passage!r}" if self._before_passage else ""
            self._space = f"{await self._endpoint.model()} {self._dimension}{before}"
        return self._space

    async def of_queries(self, texts: Sequence[str]) -> Vectors:
        return await self._vectors([self._before_query + text for text in texts], _QUERY_SECONDS)

    async def of_passages(self, texts: Sequence[str]) -> Vectors:
        import numpy as np

        parts = [texts[at : at + AT_ONCE] for at in range(0, len(texts), AT_ONCE)]
        asked = (self._vectors([self._before_passage + text for text in part], _SECONDS) for part in parts)
        return np.concatenate(await asyncio.gather(*asked))

    async def _vectors(self, texts: Sequence[str], seconds: float) -> Vectors:
        """Of a text that is longer than the model reads, the mean of its parts'."""
        import numpy as np

        most = self._most
        while True:
            cut = [[text[at : at + most] for at in range(0, len(text) or 1, most)] for text in texts]
            pieces = [piece for of_text in cut for piece in of_text]
            try:
                units = await self._asked(pieces, seconds)
                break
            except Refused as error:
                if (longest := max(map(len, pieces))) <= _SHORT:
                    raise EndpointFailed(f"--embeddings: {error}") from error
                most = max(longest // 2, _SHORT)
        if most < self._most:
            _log.warning("--embeddings refuses some texts: those of over %d characters are cut.", most)
            self._most = most
        starts = np.cumsum([0, *map(len, cut[:-1])])
        return _unit(np.add.reduceat(units, starts))

    async def _asked(self, texts: Sequence[str], seconds: float) -> Vectors:
        import numpy as np

        answer = await self._endpoint.post("/v1/embeddings", {"input": texts}, seconds)
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in rows], np.float32)
            shape = (len(texts), self._dimension or vectors.shape[1])
        except (TypeError, KeyError, IndexError, ValueError) as error:
            raise self._endpoint.failed("its answer has no embeddings") from error
        if vectors.shape != shape or not np.isfinite(vectors).all():
            problem = f"it sent {' × '.join(map(str, vectors.shape))} numbers for {len(texts)} texts"
            known = f", and {self._dimension} for each before" if self._dimension else ""
            raise self._endpoint.failed(f"{problem}{known}, or some that are no numbers")
        return _unit(vectors)


def _unit(vectors: Vectors) -> Vectors:
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)


class Reranker:
    def __init__(self, settings: Settings) -> None:
        """Raises `SettingsError`."""
        assert settings.reranker is not None
        self._endpoint = Endpoint(
            "--reranker", settings.reranker, settings.reranker_model, settings.reranker_key
        )

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """From 0 to 1. Some servers send the model's own numbers, which have no bounds."""
        body = {"query": query, "documents": texts, "top_n": len(texts)}
        try:
            answer = await self._endpoint.post("/v1/rerank", body, _SECONDS)
            found = {int(row["index"]): float(row["relevance_score"]) for row in answer["results"]}
            scores = [found[at] for at in range(len(texts))]
        except Refused as error:
            raise EndpointFailed(f"--reranker: {error}") from error
        except (TypeError, KeyError, ValueError) as error:
            raise self._endpoint.failed("its answer has no scores of all texts") from error
        if all(0 <= score <= 1 for score in scores):
            return scores
        return [0.5 + 0.5 * math.tanh(score / 2) for score in scores]


async def probed(settings: Settings) -> list[str]:
    """What the endpoints are, after a request to each. Raises `SettingsError` or `EndpointFailed`."""
    found: list[str] = []
    if settings.embeddings is not None:
        found.append(f"--embeddings: {await Embeddings(settings).space()} dimensions")
    if settings.reranker is not None:
        await Reranker(settings).scores("tides", ["High water is at three.", "Add rice."])
        found.append("--reranker ranked two texts")
    return found
