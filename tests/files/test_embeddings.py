"""Vector stores with embeddings, through the official SDK; the endpoint is a double on a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.engines.embeddings_double import EmbeddingsDouble
from tests.doubles.serving import scripted, serving

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
