"""Records are plain data, and a turn stores only its addition, however long its history is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Append, Store, StoredResponse
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.stores.sql.links import Links
from inference.engine import EngineInfo, Finish, Sampling, Step
from tests.doubles.apis.conversations import conversations_of
from tests.doubles.apis.services import responses_service
from tests.doubles.engines.replay import ReplayEngine

FINAL = "<|channel|>final<|message|>Fine.<|return|>"
CALL = (
    "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
    '<|constrain|>json<|message|>{"a": 1}<|call|>'
)
JSON = '<|channel|>final<|message|>{"a": 1}<|return|>'
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


class Decoding(MemoryStore):
    """Decodes each history from its bytes, as another process would."""

    @property
    def _links(self) -> Links:
        return Links()

    @_links.setter
    def _links(self, links: Links) -> None:
        """Nothing is remembered."""


class Replies:
    """An engine that returns its replies in order and records its prompts."""

    def __init__(self, encoding: Encoding, *replies: str) -> None:
        self._replies = [encoding.encode_special(reply) for reply in replies]
        self.info = EngineInfo(name="replies", context_length=131_072)
        self.prompts: list[list[int]] = []

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.prompts.append(list(tokens))
        yield Step(tuple(self._replies[len(self.prompts) - 1]), Finish.STOP)

    async def close(self) -> None:
        pass


async def completed(service: ResponsesService, **body: Any) -> dict[str, Any]:
    response = await (await service.start(LOCAL, {"input": "Hi", **body})).wait()
    assert response["status"] == "completed"
    return response


async def prompts_with(store: Store, encoding: Encoding, *, in_conversation: bool) -> list[list[int]]:
    """The prompts of three turns: a call, its result with a JSON answer, and a question."""
    engine = Replies(encoding, CALL, JSON, FINAL)
    service = responses_service(engine, Settings(), encoding=encoding, store=store)
    past: dict[str, Any] = {}
    if in_conversation:
        past["conversation"] = (await conversations_of(service).create({}))["id"]
    given: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "?"},
    ]
    json_answer = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}
    for body in ({}, {"text": json_answer, "metadata": {"a": "b"}}, {"reasoning": {"effort": "low"}}):
        response = await completed(service, input=given, tools=[TOOL], **body, **past)
        assert (await service.stored(LOCAL).retrieve(response["id"])).response == response
        if not in_conversation:
            past["previous_response_id"] = response["id"]
        calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call, "output": "1"} for call in calls]
        given = results or [{"role": "user", "content": "And now?"}]
    await service.close()
    return engine.prompts


@pytest.mark.parametrize("in_conversation", [True, False])
async def test_a_serialized_chain_yields_the_same_prompts(encoding: Encoding, in_conversation: bool) -> None:
    kept = await prompts_with(MemoryStore(), encoding, in_conversation=in_conversation)
    written = await prompts_with(Decoding(), encoding, in_conversation=in_conversation)
    assert written == kept
    assert len(kept) == 3


class Counting(MemoryStore):
    """Counts the segments that each `put` stores with the response and in its conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[int, int]] = []

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        parts = append.parts if append else ()
        self.counts.append((len(stored.added.segments), sum(len(part.added.segments) for part in parts)))
        await super().put(stored, append)


@pytest.mark.parametrize("by", ["previous_response_id", "conversation"])
async def test_a_late_turn_stores_as_many_segments_as_an_early_one(encoding: Encoding, by: str) -> None:
    store = Counting()
    engine = ReplayEngine(encoding.encode_special(FINAL))
    service = responses_service(engine, Settings(), encoding=encoding, store=store)
    made = await conversations_of(service).create({})
    past = None if by == "previous_response_id" else made["id"]
    for _ in range(60):
        response = await completed(service, **{by: past})
        past = response["id"] if by == "previous_response_id" else past
    assert store.counts == [(2, 2 if by == "conversation" else 0)] * 60
    history = await store.history(response["id"])
    assert history is not None
    assert len(history.segments) == 120
    await service.close()


async def test_a_turn_whose_parent_is_deleted_meanwhile_is_stored_with_its_whole_history(
    encoding: Encoding,
) -> None:
    engine = ReplayEngine(encoding.encode_special(FINAL))
    service = responses_service(engine, Settings(), encoding=encoding)
    first = await completed(service, input="one")
    second = await service.start(LOCAL, {"input": "two", "previous_response_id": first["id"]})
    await service.stored(LOCAL).delete(first["id"])
    await second.wait()
    await completed(service, input="three", previous_response_id=second.id)
    prompt = encoding.decode(engine.prompts[-1])
    assert [text in prompt for text in ("one", "two", "three")] == [True] * 3
    assert prompt.count("Fine.") == 2
    await service.close()


async def test_turns_that_no_longer_fit_into_the_context_leave_the_chain(
    encoding: Encoding,
) -> None:
    engine = ReplayEngine(encoding.encode_special(FINAL), context_length=600)
    service = responses_service(engine, Settings(), encoding=encoding)
    response: dict[str, Any] = {"id": None}
    for number in range(6):
        response = await completed(
            service,
            input=f"turn {number}: " + "word " * 100,
            previous_response_id=response["id"],
            truncation="auto",
        )
    stored = await service.stored(LOCAL).retrieve(response["id"])
    history = await service.served.stores.responses.history(response["id"])
    assert history is not None
    assert stored.parent is None
    assert len(history.segments) < 12
    assert history.segments[-1] == Segment(
        "assistant", tuple(encoding.encode_special("<|start|>assistant" + FINAL[:-10] + "<|end|>")), "final"
    )
    await service.close()
