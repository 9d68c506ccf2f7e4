"""The official `openai` SDK, unmodified, against a real server: chat completions, also stored ones."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import client_of
from tests.doubles.apis.chat_asking import TOOL
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import scripted, serving

NEXT = "<|start|>assistant"
THINKS = "<|channel|>analysis<|message|>I need f.<|end|>" + NEXT
HELLO = "<|channel|>final<|message|>Hello!<|return|>"
PREAMBLE = "<|channel|>commentary<|message|>A moment.<|end|>" + NEXT
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city":"Oslo"}<|call|>'
ASK: Any = [{"role": "user", "content": "Weather?"}]
TOOLS: Any = [TOOL]


def test_the_stream_helper_accumulates_the_same_completion_as_create() -> None:
    body: Any = {"model": "scripted", "messages": ASK, "tools": TOOLS, "logprobs": True}
    with client_of(THINKS + PREAMBLE + CALL, loop=True) as client:
        whole = client.chat.completions.create(**body)
        with client.chat.completions.stream(**body) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
    arguments = "tool_calls.function.arguments"
    assert {"content.delta", f"{arguments}.delta", f"{arguments}.done"} <= kinds
    streamed, created = (made.choices[0].message.to_dict() for made in (final, whole))
    assert (streamed["content"], streamed["reasoning"]) == ("A moment.", "I need f.")
    assert (created["content"], created["reasoning"]) == ("A moment.", "I need f.")
    assert final.choices[0].message.tool_calls[0].function.arguments == '{"city":"Oslo"}'
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason == "tool_calls"


def test_an_unknown_model_and_too_long_a_conversation_are_refused() -> None:
    long: Any = [{"role": "user", "content": "hello " * 140_000}]
    with client_of(HELLO) as client:
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="gpt-5", messages=ASK)
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="scripted", messages=long, stream=True)
    assert unknown.value.code == "model_not_found"
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "messages")


def test_the_stream_has_only_data_lines_and_ends_with_done() -> None:
    with serving(scripted(HELLO)) as url:
        response = httpx.post(f"{url}/chat/completions", json={"messages": ASK, "stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.removesuffix("\n\n").split("\n\n")
    assert frames[-1] == "data: [DONE]"
    assert all(frame.startswith("data: ") and "\n" not in frame for frame in frames)
    assert json.loads(frames[0][6:])["choices"][0]["delta"] == {"role": "assistant", "content": ""}


FORMAT: Any = {"type": "json_schema", "json_schema": {"name": "f", "schema": {"type": "object"}}}


def test_a_stream_with_a_wrong_form_ends_with_an_error_and_done_and_the_sdk_raises() -> None:
    body: Any = {"messages": ASK, "response_format": FORMAT, "stream": True}
    with client_of(HELLO, loop=True) as client:
        response = httpx.post(f"{client.base_url}chat/completions", json=body)
        stream = client.chat.completions.create(model="scripted", **body)
        with pytest.raises(openai.APIError, match="answer") as caught:
            list(stream)
    *_, error, done = response.text.removesuffix("\n\n").split("\n\n")
    assert json.loads(error[6:])["error"]["code"] == caught.value.code == "invalid_output"
    assert done == "data: [DONE]"


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_an_engine_failure_is_an_error_at_the_end_of_a_stream_too(path: str) -> None:
    engine = ReplayEngine(load_encoding().encode_special(HELLO), fails_after=4)
    body = {"messages": ASK} if path.startswith("chat") else {"prompt": "Weather?"}
    with serving(engine) as url:
        whole = httpx.post(f"{url}/{path}", json=body)
        response = httpx.post(f"{url}/{path}", json={**body, "stream": True})
    assert whole.status_code == 503
    *_, error, done = response.text.removesuffix("\n\n").split("\n\n")
    for failed in (whole.json(), json.loads(error[6:])):
        assert "the card fell out" in failed["error"]["message"]
    assert done == "data: [DONE]"


ANSWER = THINKS + HELLO
BODY: Any = {"model": "scripted", "messages": ASK}


@pytest.fixture(params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[openai.OpenAI]:
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"
    settings = Settings(store=store, python="off", served_model_name=("other",))
    with client_of(ANSWER, loop=True, settings=settings) as client:
        yield client


def test_it_is_retrieved_as_it_was_sent_where_the_request_wishes_it(client: openai.OpenAI) -> None:
    completions = client.chat.completions
    made = completions.create(**BODY, store=True, metadata={"topic": "demo"})
    found = completions.retrieve(made.id)
    assert found.to_dict() == {**made.to_dict(), "metadata": {"topic": "demo"}}
    assert found.choices[0].message.content == "Hello!"
    first, *_ = completions.create(**BODY, store=True, stream=True)
    streamed = completions.retrieve(first.id)
    assert streamed.to_dict()["choices"] == found.to_dict()["choices"]
    assert streamed.usage.completion_tokens > 0
    made = completions.create(**BODY)
    with pytest.raises(openai.NotFoundError, match="created without store=true"):
        completions.retrieve(made.id)


def test_they_are_listed_by_page_model_and_metadata(client: openai.OpenAI) -> None:
    completions = client.chat.completions
    evens = ({"even": str(number % 2 == 0)} for number in range(5))
    ids = [completions.create(**BODY, store=True, metadata=even).id for even in evens]
    other = completions.create(model="other", messages=ASK, store=True).id
    assert [listed.id for listed in completions.list(limit=2)] == [*ids, other]
    assert [listed.id for listed in completions.list(order="desc")] == [other, *reversed(ids)]
    assert [listed.id for listed in completions.list(metadata={"even": "True"})] == ids[::2]
    assert [listed.id for listed in completions.list(model="other")] == [other]
    page = completions.list(limit=4)
    assert (len(page.data), page.has_more) == (4, True)
    with pytest.raises(openai.BadRequestError, match="`after`"):
        completions.list(after="chatcmpl-unknown")


def test_its_metadata_is_changed_and_it_is_deleted(client: openai.OpenAI) -> None:
    completions = client.chat.completions
    made = completions.create(**BODY, store=True).id
    changed = completions.update(made, metadata={"topic": "other"})
    assert changed.to_dict()["metadata"] == {"topic": "other"}
    assert completions.retrieve(made).to_dict() == changed.to_dict()
    assert completions.delete(made).deleted is True
    for call in (completions.retrieve, completions.delete):
        with pytest.raises(openai.NotFoundError):
            call(made)


def test_its_messages_are_listed(client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "Hi"}]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    made = client.chat.completions.create(model="scripted", messages=messages, store=True)
    found = [message.to_dict() for message in client.chat.completions.messages.list(made.id, limit=1)]
    contents = [(message["role"], message["content"], message["content_parts"]) for message in found]
    assert contents == [("system", "Be brief.", None), ("user", None, parts)]
    assert len({message["id"] for message in found}) == 2
