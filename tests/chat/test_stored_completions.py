"""Stored chat completions by the official SDK: retrieve, list, update, delete, and their messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

ANSWER = (
    "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
HI: list[dict[str, str]] = [{"role": "user", "content": "Hi"}]


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[openai.OpenAI]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    settings = Settings(store=store, python="off", served_model_name=("other",))
    with (
        serving(scripted(ANSWER, loop=True), settings) as url,
        openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client,
    ):
        yield client


def created(client: openai.OpenAI, **more: object) -> str:
    made = client.chat.completions.create(model="scripted", messages=HI, store=True, **more)  # type: ignore[call-overload]
    return str(made.id)


def test_it_is_retrieved_as_it_was_sent(client: openai.OpenAI) -> None:
    more: Any = {"store": True, "metadata": {"topic": "demo"}}
    made = client.chat.completions.create(model="scripted", messages=HI, **more)
    found = client.chat.completions.retrieve(made.id)
    assert found.to_dict() == {**made.to_dict(), "metadata": {"topic": "demo"}}
    assert found.choices[0].message.content == "Hello!"


def test_a_stream_is_stored_too(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="scripted", messages=HI, store=True, stream=True))  # type: ignore[call-overload]
    found = client.chat.completions.retrieve(chunks[0].id)
    assert found.choices[0].message.content == "Hello!"
    assert found.choices[0].finish_reason == "stop"
    assert found.usage is not None
    assert found.usage.completion_tokens > 0


def test_it_is_stored_only_where_the_request_wishes_it(client: openai.OpenAI) -> None:
    made = client.chat.completions.create(model="scripted", messages=HI)  # type: ignore[arg-type]
    with pytest.raises(openai.NotFoundError, match="created without store=true"):
        client.chat.completions.retrieve(made.id)


def test_they_are_listed_by_page_model_and_metadata(client: openai.OpenAI) -> None:
    ids = [created(client, metadata={"even": str(number % 2 == 0)}) for number in range(5)]
    other = client.chat.completions.create(model="other", messages=HI, store=True).id  # type: ignore[arg-type]
    assert [each.id for each in client.chat.completions.list(limit=2)] == [*ids, other]
    assert [each.id for each in client.chat.completions.list(order="desc")] == [other, *reversed(ids)]
    assert [each.id for each in client.chat.completions.list(metadata={"even": "True"})] == ids[::2]
    assert [each.id for each in client.chat.completions.list(model="other")] == [other]
    page = client.chat.completions.list(limit=4)
    assert (len(page.data), page.has_more) == (4, True)
    with pytest.raises(openai.BadRequestError, match="`after`"):
        client.chat.completions.list(after="chatcmpl-unknown")


def test_its_metadata_is_changed_and_it_is_deleted(client: openai.OpenAI) -> None:
    completion_id = created(client)
    changed = client.chat.completions.update(completion_id, metadata={"topic": "other"})
    assert changed.to_dict()["metadata"] == {"topic": "other"}
    assert client.chat.completions.retrieve(completion_id).to_dict() == changed.to_dict()
    assert client.chat.completions.delete(completion_id).deleted is True
    for call in (client.chat.completions.retrieve, client.chat.completions.delete):
        with pytest.raises(openai.NotFoundError):
            call(completion_id)


def test_its_messages_are_listed(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "Hi"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    made = client.chat.completions.create(model="scripted", messages=messages, store=True)  # type: ignore[arg-type]
    found = [message.to_dict() for message in client.chat.completions.messages.list(made.id, limit=1)]
    assert [(each["role"], each["content"], each["content_parts"]) for each in found] == [
        ("system", "Be brief.", None),
        ("user", None, parts),
    ]
    assert len({each["id"] for each in found}) == 2
