"""Vector stores with embeddings, through the official SDK; the endpoint is a double on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.apis.vector_stores import embedding
from gpt_oss_server.settings import Settings
from tests.doubles.engines.embeddings_double import EmbeddingsDouble
from tests.doubles.engines.http_double import Refusal
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found

FINAL = "<|channel|>final<|message|>Fine.<|return|>"
TEXTS = {
    "harbour.txt": b"A vessel may leave the harbour at noon.",
    "kitchen.txt": b"Cook the rice, then add salt.",
    "rules.txt": b"Ships and boats: keep to the right.",
}


@pytest.fixture
async def double() -> AsyncIterator[EmbeddingsDouble]:
    async with EmbeddingsDouble() as double:
        yield double


@asynccontextmanager
async def served(settings: Settings, *turns: str) -> AsyncIterator[openai.AsyncOpenAI]:
    with serving(scripted(*(turns or (FINAL,))), settings) as url:
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield client


async def filled(client: openai.AsyncOpenAI, texts: dict[str, bytes] = TEXTS) -> str:
    store = (await client.vector_stores.create()).id
    files: Any = list(texts.items())
    done = await client.vector_stores.file_batches.upload_and_poll(store, files=files, poll_interval_ms=20)
    assert done.file_counts.completed == len(texts)
    return store


async def names(client: openai.AsyncOpenAI, store: str, query: str, **options: Any) -> list[str]:
    found = await client.vector_stores.search(store, query=query, **options)
    return [each.filename async for each in found]


async def test_a_passage_is_found_that_says_it_in_other_words(double: EmbeddingsDouble) -> None:
    async with served(Settings(embeddings=f"{double.url}/v1")) as client:
        store = await filled(client)
        assert (await names(client, store, "boat harbour"))[0] == "harbour.txt"
        assert (await names(client, store, "meal"))[0] == "kitchen.txt"


async def test_an_outage_is_told_by_the_file_and_ends(
    double: EmbeddingsDouble, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedding, "_FIRST_PAUSE", 0.01)
    async with served(Settings(embeddings=double.url)) as client:
        store = await filled(client)
        double.refusal = Refusal(503, {"error": {"message": "no room"}})
        text: Any = ("late.txt", b"Boats come back at six.")
        late = await client.vector_stores.files.upload(vector_store_id=store, file=text)

        async def look() -> Any:
            return await client.vector_stores.files.retrieve(late.id, vector_store_id=store)

        waiting = await until_found(look, lambda file: file.last_error)
        assert waiting.status == "in_progress"
        assert "no room" in waiting.last_error.message
        assert await names(client, store, "six") == ["late.txt"]  # by words
        assert "A search was by words alone. --embeddings: " in caplog.text
        chosen: Any = {"hybrid_search": {"embedding_weight": 1, "text_weight": 1}}
        with pytest.raises(openai.InternalServerError, match="cannot be compared by vectors") as refused:
            await names(client, store, "six", ranking_options=chosen)
        assert refused.value.status_code == 503
        double.refusal = None
        done = await until_found(look, lambda file: file.status == "completed")
        assert done.last_error is None
        assert "late.txt" in await names(client, store, "ship", ranking_options=chosen)


async def test_a_store_of_before_gets_its_vectors(double: EmbeddingsDouble, tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:{tmp_path}/store")
    async with served(settings) as client:
        store = await filled(client)
        assert await names(client, store, "meal") == []
        chosen: Any = {"hybrid_search": {"embedding_weight": 1, "text_weight": 0}}
        with pytest.raises(openai.BadRequestError, match="Start it with --embeddings URL"):
            await names(client, store, "meal", ranking_options=chosen)
        tool: Any = {"type": "file_search", "vector_store_ids": [store], "ranking_options": chosen}
        with pytest.raises(openai.BadRequestError, match="Start it with --embeddings URL"):
            await client.responses.create(model="scripted", input="Hi", tools=[tool])
    async with served(replace(settings, embeddings=double.url)) as client:

        async def look() -> list[str]:
            return await names(client, store, "meal", ranking_options=chosen)

        assert (await until_found(look, lambda found: len(found) == len(TEXTS)))[0] == "kitchen.txt"
        assert (await client.vector_stores.retrieve(store)).file_counts.completed == len(TEXTS)


async def test_a_reranker_orders_the_best_unless_a_request_leaves_it_out(
    double: EmbeddingsDouble, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"long.txt": b"The sea, the sea, and boats on the sea, and gulls.", "short.txt": b"A quiet sea."}
    async with served(Settings(reranker=double.url)) as client:
        store = await filled(client, texts)
        without: Any = {"ranker": "none"}
        assert await names(client, store, "sea", ranking_options=without) == ["long.txt", "short.txt"]
        [first, second] = (await client.vector_stores.search(store, query="tides quiet sea")).data
        assert (first.filename, first.score) == ("short.txt", pytest.approx(2 / 3))
        strict: Any = {"score_threshold": second.score + 0.01}
        assert await names(client, store, "quiet sea", ranking_options=strict) == ["short.txt"]
        double.refusal = Refusal(500, {"error": {"message": "out of memory"}})
        assert await names(client, store, "sea") == ["long.txt", "short.txt"]
        assert "The passages of a search were not reranked. --reranker: " in caplog.text


async def test_the_model_finds_what_other_words_say(double: EmbeddingsDouble) -> None:
    search = '<|channel|>analysis to=browser.search code<|message|>{"query": "meal"}<|call|>'
    async with served(Settings(embeddings=double.url), search, FINAL) as client:
        store = await filled(client)
        tool: Any = {"type": "file_search", "vector_store_ids": [store], "max_num_results": 1}
        asked: Any = {"input": "Food?", "tools": [tool], "include": ["file_search_call.results"]}
        answer: Any = await client.responses.create(model="scripted", **asked)
        assert [hit.filename for hit in answer.output[0].results] == ["kitchen.txt"]


@pytest.mark.parametrize(
    "options",
    [
        {"hybrid_search": {"embedding_weight": 0, "text_weight": 0}},
        {"hybrid_search": {"embedding_weight": -1, "text_weight": 1}},
        {"hybrid_search": {"embedding_weight": 1}},
        {"ranker": "best"},
        {"score_threshold": 2},
    ],
)
async def test_a_wrong_ranking_is_refused(double: EmbeddingsDouble, options: dict[str, Any]) -> None:
    async with served(Settings(embeddings=double.url)) as client:
        store = (await client.vector_stores.create()).id
        wrong: Any = options
        with pytest.raises(openai.BadRequestError, match="ranking_options"):
            await client.vector_stores.search(store, query="sea", ranking_options=wrong)
        tool: Any = {"type": "file_search", "vector_store_ids": [store], "ranking_options": wrong}
        with pytest.raises(openai.BadRequestError, match="ranking_options"):
            await client.responses.create(model="scripted", input="Hi", tools=[tool])
