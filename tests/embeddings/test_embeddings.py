"""The client of endpoints of embeddings and of rerankers, against doubles on real sockets."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from gpt_oss_server.embeddings import AT_ONCE, Embeddings, EndpointFailed, Reranker, probed
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.engines.embeddings_double import EmbeddingsDouble, cosine, vector
from tests.doubles.engines.http_double import Refusal

KEY = "sk-never-shown"


@pytest.fixture
async def double() -> AsyncIterator[EmbeddingsDouble]:
    async with EmbeddingsDouble() as double:
        yield double


def embeddings(double: EmbeddingsDouble, **settings: Any) -> Embeddings:
    return Embeddings(Settings(embeddings=f"{double.url}/v1", **settings))


async def test_vectors_are_of_length_one_and_in_the_order_of_the_texts(double: EmbeddingsDouble) -> None:
    texts = [f"boat number {number}" for number in range(3 * AT_ONCE + 1)]
    vectors = await embeddings(double).of_passages(texts)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    alike = [cosine(one, vector(text)) for one, text in zip(vectors, texts, strict=True)]
    assert alike == pytest.approx([1] * len(texts))
    assert max(len(body["input"]) for path, body in double.requests if body) == AT_ONCE
    assert not (await embeddings(double).of_passages(["!"])).any()  # a text without a word


async def test_the_space_names_all_that_made_the_vectors(double: EmbeddingsDouble) -> None:
    assert await embeddings(double).space() == "words 256"
    assert await embeddings(double, embeddings_model="mine").space() == "mine 256"
    prefixed = embeddings(double, embeddings_query_prefix="query:", embeddings_passage_prefix="passage:")
    assert await prefixed.space() == "words 256 'passage: '"
    await prefixed.of_queries(["tides"])
    await prefixed.of_passages(["tides"])
    assert double.texts[-2:] == ["query: tides", "passage: tides"]
    double.dimension = 128
    with pytest.raises(EndpointFailed, match="1 × 128 numbers for 1 texts, and 256 for each before"):
        await prefixed.of_queries(["tides"])


async def test_a_text_that_is_too_long_is_cut_and_its_parts_count_together(double: EmbeddingsDouble) -> None:
    double.longest = 600
    text = "boat " * 100 + "harbour " * 100
    own = embeddings(double)
    [found, short] = await own.of_passages([text, "rice"])
    assert cosine(found, vector(text)) > 0.9
    assert cosine(short, vector("meal")) == pytest.approx(1)
    before = len(double.requests)
    await own.of_passages([text])
    assert len(double.requests) == before + 1  # it is known what the model reads


async def test_an_outage_teaches_nothing_about_lengths(double: EmbeddingsDouble) -> None:
    own = embeddings(double)
    double.refusal = Refusal(500, {"error": {"message": "out of memory"}})
    with pytest.raises(EndpointFailed, match="out of memory"):
        await own.of_passages(["boat " * 1_000])
    double.refusal = None
    await own.of_passages(["boat " * 1_000])
    assert len(double.texts[-1]) == 5_000


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "its answer has no embeddings"),
        ({"data": [{"index": 0, "embedding": "abc"}]}, "its answer has no embeddings"),
        ({"data": []}, "its answer has no embeddings"),
        ({"data": [{"index": 0, "embedding": [1.0, float("nan")]}]}, "some that are no numbers"),
        ([], "its answer has no embeddings"),
        (b"<html>", "not JSON"),
    ],
)
async def test_a_wrong_answer_is_a_sentence(double: EmbeddingsDouble, answer: Any, why: str) -> None:
    double.refusal = Refusal(200, answer)
    with pytest.raises(EndpointFailed, match=why):
        await embeddings(double, embeddings_model="m").of_queries(["tides"])


async def test_the_key_is_sent_and_shown_nowhere(
    double: EmbeddingsDouble, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    own = embeddings(double, embeddings_key=KEY)
    await own.space()
    assert {headers["authorization"] for headers in double.headers} == {f"bearer {KEY}"}
    double.refusal = Refusal(401, {"error": {"message": "wrong key"}})
    with pytest.raises(EndpointFailed, match="wrong key") as failed:
        await own.of_queries(["tides"])
    assert KEY not in f"{failed.value} {caplog.text}"


@pytest.mark.parametrize("logits", [False, True])
async def test_a_reranker_scores_from_0_to_1(double: EmbeddingsDouble, *, logits: bool) -> None:
    double.logits = logits
    reranker = Reranker(Settings(reranker=double.url))
    scores = await reranker.scores("boat", ["rice", "ship", "a ship"])
    assert scores == pytest.approx([0, 1, 0.5], abs=0.002)
    double.refusal = Refusal(200, {"results": [{"index": 0, "relevance_score": 1}]})
    with pytest.raises(EndpointFailed, match="no scores of all texts"):
        await reranker.scores("boat", ["rice", "ship"])


async def test_an_endpoint_that_is_gone_or_none_is_a_sentence(double: EmbeddingsDouble) -> None:
    with pytest.raises(EndpointFailed, match=r"--embeddings: .* no connection"):
        await Embeddings(Settings(embeddings="http://127.0.0.1:9/v1")).space()
    for url in ("ftp://127.0.0.1", f"http://user:{KEY}@127.0.0.1", "http://"):
        with pytest.raises(SettingsError, match="--embeddings must be the base URL") as refused:
            Embeddings(Settings(embeddings=url))
        assert KEY not in str(refused.value)


async def test_a_probe_asks_both(double: EmbeddingsDouble) -> None:
    assert await probed(Settings()) == []
    found = await probed(Settings(embeddings=double.url, reranker=double.url))
    assert found == ["--embeddings: words 256 dimensions", "--reranker ranked two texts"]
    with pytest.raises(EndpointFailed, match=r"--reranker: .*no connection"):
        await probed(Settings(embeddings=double.url, reranker="http://127.0.0.1:9"))
