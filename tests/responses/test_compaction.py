"""Compaction: the model's own summary replaces the earlier conversation, wherever the client keeps it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses import CompactedResponse

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.stores.sealing import Sealer
from inference.engine import EngineFailed, Sampling, Step
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.engines.summariser import ANSWER, SUMMARY, Summariser
from tests.doubles.lints import check_stream

Make = Callable[..., Api]
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
MANAGED = [{"type": "compaction", "compact_threshold": 1_000}]
LONG = "filler " * 1_500


async def test_a_trigger_produces_only_the_compaction(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    items = [{"role": "user", "content": "I grow roses."}, {"type": "compaction_trigger"}]
    events = await here.streamed(input=items, tools=[TOOL])
    response = check_stream(events)
    [item] = response["output"]
    assert item["type"] == "compaction"
    assert "roses" not in json.dumps(events[-1]["response"]["output"])
    kinds = [event["type"] for event in events[2:-1]]
    assert kinds == [
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
    ]
    assert engine.prompts == []
    usage = response["usage"]
    assert usage["input_tokens"] == len(engine.tokens[0])
    assert usage["output_tokens"] == len(encoding.encode_special(SUMMARY.format("They grow roses.")))
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0
    listed = (await here.get(f"/responses/{response['id']}/input_items"))["data"]
    assert [each["type"] for each in listed] == ["message"]


async def test_the_output_limit_bounds_a_summary_that_is_the_whole_response(
    api: Make, encoding: Encoding
) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    items = [{"role": "assistant", "content": LONG}, {"role": "user", "content": "?"}]
    await here.create(input=[*items, {"type": "compaction_trigger"}], max_output_tokens=50)
    await here.create(input=items, context_management=MANAGED, max_output_tokens=50)
    assert engine.samplings[0].max_tokens == engine.samplings[2].max_tokens == 50


async def test_its_item_restores_the_summary_the_instructions_and_the_users_messages(
    api: Make, encoding: Encoding
) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    items = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "I grow roses. Grüße!"},
        {"role": "assistant", "content": "Lovely, roses it is."},
        {"type": "compaction_trigger"},
    ]
    [compaction] = (await here.create(input=items, store=False))["output"]
    question = {"role": "user", "content": "What do I grow?"}
    for before in ([], items[:-1], items[1:2]):  # omitting or resending items makes no difference
        await here.create(input=[*before, compaction, question])
    for prompt in engine.prompts:
        assert prompt == engine.prompts[0]
    prompt = engine.prompts[0]
    assert prompt.count("Be kind.") == 1
    assert prompt.count("I grow roses. Grüße!") == 1
    assert "Lovely" not in prompt
    order = [prompt.index(text) for text in ("Be kind.", "Grüße", "They grow roses.", "What do I grow?")]
    assert order == sorted(order)


async def test_changed_instructions_precede_those_in_the_item(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    old = {"role": "developer", "content": "The old rule."}
    items = [old, {"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    [compaction] = (await here.create(input=items))["output"]
    await here.create(
        input=[
            {"role": "developer", "content": "The new rule."},
            compaction,
            {"role": "user", "content": "?"},
        ]
    )
    assert engine.prompts[0].index("The new rule.") < engine.prompts[0].index("The old rule.")


async def test_over_the_threshold_a_response_compacts_first_and_then_answers(
    api: Make, encoding: Encoding
) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    short = await here.create(input="Hi", context_management=MANAGED)
    assert [item["type"] for item in short["output"]] == ["message"]
    items = [{"role": "assistant", "content": LONG}, {"role": "user", "content": "My question?"}]
    events = await here.streamed(input=items, context_management=MANAGED)
    response = check_stream(events)
    assert [item["type"] for item in response["output"]] == ["compaction", "message"]
    assert "filler" in engine.summary_prompts[0]
    assert "filler" not in engine.prompts[-1]
    assert engine.prompts[-1].index("My question?") < engine.prompts[-1].index("They grow roses.")
    assert response["usage"]["input_tokens"] == sum(map(len, engine.tokens[1:]))
    # Continuing by id and by items gives the model exactly the same tokens.
    follow = {"role": "user", "content": "And?"}
    await here.create(input=[follow], previous_response_id=response["id"], context_management=MANAGED)
    await here.create(input=[*items, *response["output"], follow], context_management=MANAGED)
    assert list(engine.tokens[-1]) == list(engine.tokens[-2])
    assert len(engine.summary_prompts) == 1


async def test_in_the_middle_of_a_tool_loop_it_continues_with_the_call(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding, CALL, ANSWER.format("It is 1."))
    here = api(engine)
    first = await here.create(input="Look.", tools=[TOOL])
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": LONG}
    second = await here.create(
        input=[result], tools=[TOOL], previous_response_id=first["id"], context_management=MANAGED
    )
    assert [item["type"] for item in second["output"]] == ["compaction", "message"]
    assert "Look." in engine.prompts[-1]
    assert "filler" not in engine.prompts[-1]


async def test_a_conversation_too_long_for_the_context_is_compacted_in_time(
    api: Make, encoding: Encoding
) -> None:
    engine = Summariser(encoding, context=4_000)
    here = api(engine)
    turns = [
        {"role": ("user", "assistant")[n % 2], "content": f"turn {n} " + "word " * 400} for n in range(30)
    ]
    whole = [*turns, {"role": "user", "content": "Now?"}]
    error = await here.refused("/responses", input=whole)
    assert error["code"] == "context_length_exceeded"
    managed = [{"type": "compaction", "compact_threshold": 1_000_000}]
    response = await here.create(input=whole, context_management=managed)
    assert response["status"] == "completed"
    assert "turn 29" in engine.summary_prompts[0]  # as much of the newest as fits
    assert "turn 0 " not in engine.summary_prompts[0]
    assert "Now?" in engine.prompts[0]
    assert all(len(tokens) < 4_000 for tokens in engine.tokens)


async def test_a_message_too_long_by_itself_is_omitted_and_the_users_is_cut(
    api: Make, encoding: Encoding
) -> None:
    engine = Summariser(encoding, context=4_000)
    here = api(engine)
    items = [
        {"role": "assistant", "content": "An early remark."},
        {"role": "assistant", "content": "word " * 5_000},
        {"role": "user", "content": "Begins. " + "question " * 2_000},
        {"type": "compaction_trigger"},
    ]
    [compaction] = (await here.create(input=items))["output"]
    assert "An early remark." in engine.summary_prompts[0]
    assert "word word" not in engine.summary_prompts[0]
    await here.create(input=[compaction, {"role": "user", "content": "?"}])
    assert "Begins." in engine.prompts[0]
    assert "[…]" in engine.prompts[0]


async def test_a_compaction_of_a_compaction_keeps_one_summary(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    items: list[Any] = [{"role": "user", "content": "The first wish."}, {"type": "compaction_trigger"}]
    for _ in range(3):
        [compaction] = (await here.create(input=items))["output"]
        items = [compaction, {"role": "user", "content": "A further wish."}, {"type": "compaction_trigger"}]
    await here.create(input=[compaction, {"role": "user", "content": "Now?"}])
    assert engine.prompts[0].count("They grow roses.") == 1
    assert engine.prompts[0].count("The first wish.") == 1
    assert engine.summary_prompts[-1].count("They grow roses.") == 1


async def test_the_endpoint_returns_the_users_messages_and_the_compaction(
    api: Make, encoding: Encoding
) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    first = await here.create(input="The first wish.")
    compacted = await here.post(
        "/responses/compact", input="The second wish.", previous_response_id=first["id"], model="summariser"
    )
    CompactedResponse.model_construct(**compacted)
    assert compacted["object"] == "response.compaction"
    assert [item["type"] for item in compacted["output"]] == ["message", "message", "compaction"]
    texts = [item["content"][0]["text"] for item in compacted["output"][:2]]
    assert texts == ["The first wish.", "The second wish."]
    assert compacted["usage"]["output_tokens"] > 0
    await here.create(input=[*compacted["output"], {"role": "user", "content": "Now?"}])
    assert engine.prompts[-1].count("The first wish.") == 1
    assert "They grow roses." in engine.prompts[-1]


async def test_the_endpoint_requires_a_model_or_null(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    error = await here.refused("/responses/compact", input="Hi")
    assert (error["status"], error["param"], error["message"]) == (400, "model", "`model` is missing.")
    assert engine.summary_prompts == []
    compacted = await here.post("/responses/compact", model=None, input="Hi")
    assert compacted["object"] == "response.compaction"


async def test_a_conversation_is_compacted_and_continues(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding)
    here = api(engine)
    made = await here.post("/conversations", items=[{"role": "assistant", "content": LONG}])
    for _ in range(2):
        await here.create(conversation=made["id"], context_management=MANAGED)
    listed = (await here.get(f"/conversations/{made['id']}/items", order="asc"))["data"]
    kinds = ["message", "message", "compaction", "message", "message", "message"]
    assert [item["type"] for item in listed] == kinds
    assert len(engine.summary_prompts) == 1
    assert "filler" not in engine.prompts[-1]
    compacted = await here.post("/responses/compact", model="summariser", conversation=made["id"])
    assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]
    assert await here.delete(f"/conversations/{made['id']}/items/{listed[-1]['id']}") == made


async def test_no_call_is_made_while_it_summarises(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding, summary="Done.")
    here = api(engine)
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    bias = {"logit_bias": {"5": -100}, "tool_choice": "required", "presence_penalty": 1.0}
    await here.create(input=items, tools=[TOOL], text={"format": {"type": "json_object"}}, **bias)
    sampling = engine.samplings[0]
    assert (sampling.logit_bias, sampling.presence_penalty) == ({}, 0.0)


@pytest.mark.parametrize("text", ["", "<|channel|>analysis<|message|><|end|>", CALL])
async def test_a_model_that_writes_no_summary_fails_the_response(
    api: Make, encoding: Encoding, text: str
) -> None:
    here = api(ReplayEngine(encoding.encode_special(text)))
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    response = check_stream(await here.streamed(input=items))
    assert response["status"] == "failed"
    assert response["output"] == []
    error = await here.refused("/responses/compact", model=None, input="Hi")
    assert (error["status"], error["code"]) == (500, "server_error")
    assert "no summary" in error["message"]


async def test_an_engine_failure_is_reported(api: Make) -> None:
    here = api(ReplayEngine([1, 2], fails_after=0, error=EngineFailed("out of memory")))
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    response = check_stream(await here.streamed(input=items))
    assert (response["status"], response["output"]) == ("failed", [])
    assert (await here.refused("/responses/compact", model=None, input="Hi"))["status"] == 500


async def test_a_background_response_is_cancelled_while_it_compacts(api: Make, encoding: Encoding) -> None:
    class Stuck(Summariser):
        async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
            yield Step(tuple(self._encoding.encode_special("<|channel|>final<|message|>The half")))
            stuck.set()
            await asyncio.sleep(3600)

    stuck = asyncio.Event()
    here = api(Stuck(encoding))
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    response = await here.create(input=items, background=True)
    await asyncio.wait_for(stuck.wait(), 20)
    cancelled = await here.post(f"/responses/{response['id']}/cancel")
    assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
    assert cancelled["usage"]["output_tokens"] > 0
    assert check_stream(await here.replayed(response["id"])) == cancelled


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "compaction"}, "input[0].encrypted_content"),
        ({"type": "compaction", "encrypted_content": ""}, "input[0].encrypted_content"),
        ({"type": "compaction", "encrypted_content": "gAAAAABforeign"}, "input[0].encrypted_content"),
        ({"type": "compaction", "encrypted_content": 5}, "input[0].encrypted_content"),
        ({"type": "compaction_trigger"}, "input[0]"),
    ],
)
async def test_a_foreign_or_misplaced_item_is_refused(
    api: Make, encoding: Encoding, item: dict[str, Any], param: str
) -> None:
    error = await api(Summariser(encoding)).refused(
        "/responses", input=[item, {"role": "user", "content": "?"}]
    )
    assert (error["status"], error["param"]) == (400, param)


async def test_another_servers_compaction_and_a_changed_one_are_refused(
    api: Make, encoding: Encoding
) -> None:
    here, there = api(Summariser(encoding)), api(Summariser(encoding))
    served, another = there.service.served, Sealer(b"another key, as another server has")
    served.stores = replace(served.stores, sealer=another)
    items = [{"role": "user", "content": "Hi"}, {"type": "compaction_trigger"}]
    [compaction] = (await here.create(input=items))["output"]
    question = {"role": "user", "content": "?"}
    assert (await there.refused("/responses", input=[compaction, question]))["status"] == 400
    sealed = compaction["encrypted_content"]
    changed = {
        **compaction,
        "encrypted_content": sealed[:40] + ("A" if sealed[40] != "A" else "B") + sealed[41:],
    }
    assert (await here.refused("/responses", input=[changed, question]))["status"] == 400


@pytest.mark.parametrize(
    "managed",
    [
        "compaction",
        [{"type": "other"}],
        [{"type": "compaction", "compact_threshold": 999}],
        [{"type": "compaction", "compact_threshold": "many"}],
    ],
)
async def test_context_management_is_checked(api: Make, encoding: Encoding, managed: Any) -> None:
    error = await api(Summariser(encoding)).refused("/responses", input="Hi", context_management=managed)
    assert error["status"] == 400
    assert error["param"].startswith("context_management")


async def test_input_tokens_are_those_of_the_prompt(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding, context=4_000)
    here = api(engine)
    body: dict[str, Any] = {
        "input": "How many?",
        "instructions": "Count.",
        "tools": [TOOL],
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    }
    counted = await here.post("/responses/input_tokens", **body)
    response = await here.create(**body)
    assert counted == {
        "object": "response.input_tokens",
        "input_tokens": response["usage"]["input_tokens"],
    }
    after = await here.post("/responses/input_tokens", input="And?", previous_response_id=response["id"])
    more = await here.create(input="And?", previous_response_id=response["id"])
    assert after["input_tokens"] == more["usage"]["input_tokens"]
    long = {
        "input": [{"role": "user", "content": "word " * 3_000}, {"role": "user", "content": "word " * 3_000}]
    }
    assert (await here.post("/responses/input_tokens", **long))["input_tokens"] > 6_000
    fitted = await here.post("/responses/input_tokens", **long, truncation="auto")
    assert 3_000 < fitted["input_tokens"] < 4_000
    assert (await here.refused("/responses/input_tokens", input=5))["status"] == 400
