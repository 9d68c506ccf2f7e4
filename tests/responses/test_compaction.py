"""Compaction: the model's own summary replaces the earlier conversation, wherever the client keeps it."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from openai.types.responses import CompactedResponse

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineFailed, Sampling, Step
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.harmony.sampling import allowed
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.responses.conftest import ANSWER, SUMMARY, Make, Summariser

CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
MANAGED = [{"type": "compaction", "compact_threshold": 1_000}]
TRIGGER = {"type": "compaction_trigger"}
LONG = "filler " * 1_500
ROSES = SUMMARY.format("They grow roses.")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def developer(text: str) -> dict[str, Any]:
    return {"role": "developer", "content": text}


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.fixture
def engine(encoding: Encoding) -> Summariser:
    return Summariser(encoding)


@pytest.fixture
def here(api: Make, engine: Summariser) -> Api:
    return api(engine)


async def test_a_trigger_only_compacts(here: Api, encoding: Encoding, engine: Summariser) -> None:
    bias = {"logit_bias": {"5": -100}, "tool_choice": "required", "presence_penalty": 1.0}
    events = await here.streamed(
        input=[user("I grow roses."), TRIGGER], tools=[TOOL], text={"format": {"type": "json_object"}}, **bias
    )
    response = check_stream(events)
    assert kinds(response) == ["compaction"]
    assert "roses" not in json.dumps(response["output"])
    added, done = "response.output_item.added", "response.output_item.done"
    assert [event["type"] for event in events[2:-1]] == [added, "response.compaction.compacting", done]
    assert engine.prompts == []
    (sampling,) = engine.samplings
    assert (sampling.logit_bias, sampling.presence_penalty) == ({}, 0.0)
    usage = response["usage"]
    assert usage["input_tokens"] == len(engine.tokens[0])
    assert usage["output_tokens"] == len(encoding.encode_special(ROSES))
    assert usage["output_tokens_details"]["reasoning_tokens"] > 0
    listed = (await here.get(f"/responses/{response['id']}/input_items"))["data"]
    assert [item["type"] for item in listed] == ["message"]


async def test_a_summary_is_about_as_long_as_what_it_replaces_at_most(here: Api, engine: Summariser) -> None:
    for words in (1, 1_500, 20_000):
        await here.create(input=[assistant("filler " * words), TRIGGER])
    short, middle, long = (sampling.max_tokens for sampling in engine.samplings)
    assert (short, long) == (256, 8_192)
    assert 1_500 < middle < 1_520


async def test_the_output_limit_bounds_a_summary_that_is_all(here: Api, engine: Summariser) -> None:
    items = [assistant(LONG), user("?")]
    await here.create(input=[*items, TRIGGER], max_output_tokens=50)
    await here.create(input=items, context_management=MANAGED, max_output_tokens=50)
    assert engine.samplings[0].max_tokens == engine.samplings[2].max_tokens == 50


async def test_its_item_restores_summary_instructions_and_messages(here: Api, engine: Summariser) -> None:
    items = [developer("Be kind."), user("I grow roses. Grüße!"), assistant("Lovely, roses it is.")]
    [compaction] = (await here.create(input=[*items, TRIGGER], store=False))["output"]
    for before in ([], items, items[1:2]):  # omitting or resending items makes no difference
        await here.create(input=[*before, compaction, user("What do I grow?")])
    prompt, *others = engine.prompts
    assert others == [prompt] * 2
    assert (prompt.count("Be kind."), prompt.count("I grow roses. Grüße!")) == (1, 1)
    assert "Lovely" not in prompt
    order = [prompt.index(text) for text in ("Be kind.", "Grüße", "They grow roses.", "What do I grow?")]
    assert order == sorted(order)
    await here.create(input=[developer("A new rule."), compaction, user("?")])
    assert engine.prompts[-1].index("A new rule.") < engine.prompts[-1].index("Be kind.")


async def test_over_the_threshold_it_compacts_and_then_answers(here: Api, engine: Summariser) -> None:
    assert kinds(await here.create(context_management=MANAGED)) == ["message"]
    items = [assistant(LONG), user("My question?")]
    response = check_stream(await here.streamed(input=items, context_management=MANAGED))
    assert kinds(response) == ["compaction", "message"]
    assert "filler" in engine.summary_prompts[0]
    assert "filler" not in engine.prompts[-1]
    assert engine.prompts[-1].index("My question?") < engine.prompts[-1].index("They grow roses.")
    assert response["usage"]["input_tokens"] == sum(map(len, engine.tokens[1:]))
    # Continuing by id and by items gives the model exactly the same tokens.
    follow, more = user("And?"), {"context_management": MANAGED}
    await here.create(input=[follow], previous_response_id=response["id"], **more)
    await here.create(input=[*items, *response["output"], follow], **more)
    assert list(engine.tokens[-1]) == list(engine.tokens[-2])
    assert len(engine.summary_prompts) == 1


async def test_in_the_middle_of_a_tool_loop_it_continues_with_the_call(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding, CALL, ANSWER.format("It is 1."))
    here = api(engine)
    first = await here.create(input="Look.", tools=[TOOL])
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": LONG}
    more = {"tools": [TOOL], "previous_response_id": first["id"], "context_management": MANAGED}
    assert kinds(await here.create(input=[result], **more)) == ["compaction", "message"]
    assert "Look." in engine.prompts[-1]
    assert "filler" not in engine.prompts[-1]


async def test_a_conversation_too_long_is_compacted_in_time(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding, context=4_000)
    here = api(engine)
    turns = [(user, assistant)[number % 2](f"turn {number} " + "word " * 400) for number in range(30)]
    whole = [*turns, user("Now?")]
    assert (await here.refused("/responses", input=whole))["code"] == "context_length_exceeded"
    managed = [{"type": "compaction", "compact_threshold": 1_000_000}]
    assert (await here.create(input=whole, context_management=managed))["status"] == "completed"
    assert "turn 29" in engine.summary_prompts[0]  # as much of the newest as fits
    assert "turn 0 " not in engine.summary_prompts[0]
    assert "Now?" in engine.prompts[0]
    assert all(len(tokens) < 4_000 for tokens in engine.tokens)


async def test_a_message_too_long_is_omitted_and_the_users_is_cut(api: Make, encoding: Encoding) -> None:
    engine = Summariser(encoding, context=4_000)
    here = api(engine)
    items = [
        assistant("An early remark."),
        assistant("word " * 5_000),
        user("Begins. " + "question " * 2_000),
    ]
    [compaction] = (await here.create(input=[*items, TRIGGER]))["output"]
    assert "An early remark." in engine.summary_prompts[0]
    assert "word word" not in engine.summary_prompts[0]
    await here.create(input=[compaction, user("?")])
    assert "Begins." in engine.prompts[0]
    assert "[…]" in engine.prompts[0]


async def test_a_compaction_of_a_compaction_keeps_one_summary(here: Api, engine: Summariser) -> None:
    items: list[Any] = [user("The first wish."), TRIGGER]
    for _ in range(3):
        [compaction] = (await here.create(input=items))["output"]
        items = [compaction, user("A further wish."), TRIGGER]
    await here.create(input=[compaction, user("Now?")])
    assert engine.prompts[0].count("They grow roses.") == 1
    assert engine.prompts[0].count("The first wish.") == 1
    assert engine.summary_prompts[-1].count("They grow roses.") == 1


async def test_the_endpoint_returns_messages_and_the_compaction(here: Api, engine: Summariser) -> None:
    first = await here.create(input="The first wish.")
    body = {"input": "The second wish.", "previous_response_id": first["id"]}
    error = await here.refused("/responses/compact", **body)
    assert (error["status"], error["param"], error["message"]) == (400, "model", "`model` is missing.")
    assert engine.summary_prompts == []
    compacted = await here.post("/responses/compact", **body, model=None)
    CompactedResponse.model_construct(**compacted)
    assert compacted["object"] == "response.compaction"
    assert kinds(compacted) == ["message", "message", "compaction"]
    texts = [item["content"][0]["text"] for item in compacted["output"][:2]]
    assert texts == ["The first wish.", "The second wish."]
    assert compacted["usage"]["output_tokens"] > 0
    await here.create(input=[*compacted["output"], user("Now?")])
    assert engine.prompts[-1].count("The first wish.") == 1
    assert "They grow roses." in engine.prompts[-1]


async def test_a_conversation_is_compacted_and_continues(here: Api, engine: Summariser) -> None:
    made = await here.post("/conversations", items=[assistant(LONG)])
    for _ in range(2):
        await here.create(conversation=made["id"], context_management=MANAGED)
    listed = (await here.get(f"/conversations/{made['id']}/items", order="asc"))["data"]
    assert [item["type"] for item in listed] == [*["message"] * 2, "compaction", *["message"] * 3]
    assert len(engine.summary_prompts) == 1
    assert "filler" not in engine.prompts[-1]
    compacted = await here.post("/responses/compact", model="summariser", conversation=made["id"])
    assert kinds(compacted) == ["message", "compaction"]
    assert await here.delete(f"/conversations/{made['id']}/items/{listed[-1]['id']}") == made


async def test_a_grammar_binds_a_summary(api: Make, encoding: Encoding, engine: Summariser) -> None:
    engine.info = replace(engine.info, enforces_grammar=True)
    await api(engine).create(input=[user("Hi"), TRIGGER], tools=[TOOL])
    grammar = engine.samplings[0].grammar
    state = grammar.start()
    channel, *final = encoding.encode_special("<|channel|>final<|message|>")
    assert [token for token, may in enumerate(allowed(state.mask())) if may] == [channel]
    for token in (channel, *final, *encoding.encode("They grow roses.")):
        state.accept(token)
    ends = encoding.encode_special("<|return|><|end|><|call|><|start|><|channel|>")
    assert [bool(allowed(state.mask())[token]) for token in ends] == [True, False, False, False, False]


async def test_a_summary_that_repeats_itself_ends(api: Make, encoding: Encoding) -> None:
    text = "<|channel|>final<|message|>They grow roses." + " and so on" * 2_000
    engine = ReplayEngine(encoding.encode_special(text))
    engine.info = replace(engine.info, loops=True)
    response = check_stream(await api(engine).streamed(input=[assistant(LONG), TRIGGER]))
    assert (response["status"], kinds(response)) == ("completed", ["compaction"])
    assert response["usage"]["output_tokens"] < 300


@pytest.mark.parametrize("text", ["", "<|channel|>analysis<|message|><|end|>", CALL, None])
async def test_a_response_without_a_summary_fails(api: Make, encoding: Encoding, text: str | None) -> None:
    broken = {"fails_after": 0, "error": EngineFailed("out of memory")} if text is None else {}
    here = api(ReplayEngine(encoding.encode_special(text or ""), **broken))
    response = check_stream(await here.streamed(input=[user("Hi"), TRIGGER]))
    assert (response["status"], response["output"]) == ("failed", [])
    error = await here.refused("/responses/compact", model=None, input="Hi")
    assert (error["status"], error["code"]) == (503 if text is None else 500, "server_error")
    assert ("out of memory" if text is None else "no summary") in error["message"]


async def test_a_background_response_is_cancelled_while_it_compacts(api: Make, encoding: Encoding) -> None:
    class Stuck(Summariser):
        async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
            yield Step(tuple(self._encoding.encode_special("<|channel|>final<|message|>The half")))
            stuck.set()
            await asyncio.sleep(3600)

    stuck = asyncio.Event()
    here = api(Stuck(encoding))
    response = await here.create(input=[user("Hi"), TRIGGER], background=True)
    await asyncio.wait_for(stuck.wait(), 20)
    cancelled = await here.post(f"/responses/{response['id']}/cancel")
    assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
    assert cancelled["usage"]["output_tokens"] > 0
    assert check_stream(await here.replayed(response["id"])) == cancelled


SEALED = "input[0].encrypted_content"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"input": [{"type": "compaction"}]}, SEALED),
    *(
        ({"input": [{"type": "compaction", "encrypted_content": text}]}, SEALED)
        for text in ("", "gAAAAABforeign", 5)
    ),
    ({"input": [TRIGGER, user("?")]}, "input[0]"),
    ({"context_management": "compaction"}, "context_management"),
    ({"context_management": [{"type": "other"}]}, "context_management[0].type"),
    *(
        ({"context_management": [{"type": "compaction", "compact_threshold": least}]}, "context_management")
        for least in (999, "many")
    ),
]


@pytest.mark.parametrize(("body", "param"), WRONG, ids=str)
async def test_a_wrong_field_is_named(api: Make, body: dict[str, Any], param: str) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", **{"input": "Hi", **body})
    assert error["status"] == 400
    assert error["param"].startswith(param)


async def test_input_tokens_are_those_of_the_prompt(api: Make, encoding: Encoding) -> None:
    here = api(Summariser(encoding, context=4_000))
    body: dict[str, Any] = {
        "input": "How many?",
        "instructions": "Count.",
        "tools": [TOOL],
        "reasoning": {"effort": "high"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    }
    path = "/responses/input_tokens"
    counted = await here.post(path, **body)
    response = await here.create(**body)
    assert counted == {"object": "response.input_tokens", "input_tokens": response["usage"]["input_tokens"]}
    follow = {"input": "And?", "previous_response_id": response["id"]}
    after, more = await here.post(path, **follow), await here.create(**follow)
    assert after["input_tokens"] == more["usage"]["input_tokens"]
    long = {"input": [user("word " * 3_000)] * 2}
    assert (await here.post(path, **long))["input_tokens"] > 6_000
    assert 3_000 < (await here.post(path, **long, truncation="auto"))["input_tokens"] < 4_000
    assert (await here.refused(path, input=5))["status"] == 400


async def test_it_logs_compactions(api: Make, encoding: Encoding, caplog: pytest.LogCaptureFixture) -> None:
    here, items = api(Summariser(encoding), log_prompts=True), [assistant(LONG), user("My question?")]
    caplog.set_level(logging.INFO)
    response = await here.create(input=items, context_management=MANAGED, metadata={"__debug": "true"})
    metadata = response["metadata"]
    assert "Write the summary, and nothing else." in metadata["__debug_compaction_input"]
    assert metadata["__debug_compaction_output"] == ROSES
    assert metadata["__debug_output"] == ANSWER.format("Fine.")
    assert f"output: {ROSES}" in caplog.text
    assert f"output: {ANSWER.format('Fine.')}" in caplog.text
    caplog.clear()
    await here.post("/responses/compact", model=None, input="Hi")
    assert f"output: {ROSES}" in caplog.text
    caplog.clear()
    await api(Summariser(encoding)).post("/responses/compact", model=None, input="Hi")
    assert "roses" not in caplog.text
