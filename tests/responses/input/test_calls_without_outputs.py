"""Calls and their outputs: a whole call needs one, a cut call gets a note, the last of several counts."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from tests.doubles.apis.asking import FINAL, NEXT, Asking, call
from tests.doubles.apis.services import conversations_of
from tests.doubles.serving import scripted

ANSWER = FINAL.format("Hello!")
CUT_OFF = "functions.f to=assistant<|channel|>commentary<|message|>This call was cut off"
NOT_AWAITED = "functions.f to=assistant<|channel|>commentary<|message|>The response ended before"
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def made(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


@pytest.mark.parametrize(
    "items",
    [
        [made("a")],
        [made("a"), "And?"],
        [made("a"), made("b"), output("a", "1")],
        [made("a"), output("a", "1"), made("b")],
        [{"type": "custom_tool_call", "call_id": "a", "name": "g", "input": "x"}, "And?"],
    ],
    ids=range(5),
)
async def test_a_call_without_an_output_is_refused_as_at_openai(items: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"No tool output found for function call [ab]") as raised:
        await Asking(ANSWER).prompt(input=["Hi", *items])
    assert raised.value.status == 400


async def test_a_call_that_was_cut_off_is_noted_unless_it_has_an_output() -> None:
    cut = made("a", status="incomplete", arguments='{"x')
    prompt = await Asking(ANSWER).prompt(input=["Hi", cut, "And?"])
    assert prompt.index('{"x<|call|>') < prompt.index(CUT_OFF) < prompt.index("And?")
    answered = await Asking(ANSWER).prompt(input=["Hi", cut, output("a", "It ran.")])
    assert "It ran." in answered
    assert "cut off" not in answered


async def test_of_two_outputs_the_last_counts_and_an_id_may_return() -> None:
    first = [made("a"), output("a", "one"), output("a", "two")]
    again = [made("a"), output("a", "three"), "And?"]
    prompt = await Asking(ANSWER).prompt(input=["Hi", *first, *again])
    assert [text in prompt for text in ("one", "two", "three")] == [False, True, True]


async def test_arguments_may_be_an_object() -> None:
    ask = Asking(ANSWER)
    body = {"input": ["Hi", made("a", arguments={"city": "Zürich", "n": [1, None]}), output("a", "x")]}
    response = await ask(**body, tools=[TOOL])
    listed = (await ask.service.stored(LOCAL).retrieve(response["id"])).input_items
    assert listed[1]["arguments"] == '{"city":"Zürich","n":[1,null]}'
    assert '<|message|>{"city":"Zürich","n":[1,null]}<|call|>' in await ask.prompt(**body)


@pytest.mark.parametrize("limit", [12, 13])
async def test_the_turn_after_a_cut_call_reads_why_it_has_no_result(limit: int) -> None:
    ask = Asking(call("functions.f", '{"city": "Oslo"}'))
    cut = await ask(tools=[TOOL], max_output_tokens=limit)
    assert cut["output"][0]["status"] == "incomplete"
    prompt = await ask.prompt(input="And?", previous_response_id=cut["id"], tools=[TOOL])
    assert prompt.index(CUT_OFF) < prompt.index("And?")
    items = await ask.prompt(input=["Hi", *cut["output"], "And?"], tools=[TOOL])
    assert CUT_OFF in items


async def test_the_turn_after_a_whole_call_needs_its_output() -> None:
    ask = Asking(call("functions.f", "{}") + NEXT + call("functions.f", '{"n":2}'), ANSWER)
    response = await ask(tools=[TOOL], parallel_tool_calls=True)
    first, second = (item["call_id"] for item in response["output"])
    more: dict[str, Any] = {"previous_response_id": response["id"], "tools": [TOOL]}
    with pytest.raises(InvalidRequest, match="No tool output found"):
        await ask.prompt(input="And?", **more)
    with pytest.raises(InvalidRequest, match=f"No tool output found for function call {second}"):
        await ask.prompt(input=[output(first, "1"), "And?"], **more)
    prompt = await ask.prompt(input=[output(second, "2"), output(first, "1"), "And?"], **more)
    assert prompt.index("<|message|>1<|end|>") < prompt.index("<|message|>2<|end|>")


async def test_the_turn_after_a_cancelled_response_reads_that_its_calls_have_no_results() -> None:
    long = f"<|channel|>final<|message|>{'word ' * 4_000}<|return|>"
    engine = scripted(call("functions.f", "{}") + NEXT + long, tokens_per_second=200)
    ask = Asking(engine=engine)
    run = await ask.service.start(
        LOCAL, {"input": "Hi", "tools": [TOOL], "background": True, "parallel_tool_calls": True}
    )
    log = await ask.service.run_in_background(run)
    async for batch in log.read():
        if any(b"output_item.done" in event for event in batch):
            break
    cancelled = await ask.service.stored(LOCAL).cancel(run.id)
    assert cancelled["output"][0]["type"] == "function_call"
    prompt = await ask.prompt(input="And?", previous_response_id=run.id, tools=[TOOL])
    assert NOT_AWAITED in prompt or CUT_OFF in prompt
    await ask.service.close()


async def test_a_conversation_may_get_a_call_and_its_output_one_after_the_other() -> None:
    ask = Asking(ANSWER)
    here = conversations_of(ask.service)
    conversation = (await here.create({"items": [{"role": "user", "content": "Hi"}, made("a")]}))["id"]
    with pytest.raises(InvalidRequest, match="No tool output found for function call a"):
        await ask(conversation=conversation, input="And?")
    await here.add_items(conversation, {"items": [output("a", "1")]})
    assert (await ask(conversation=conversation, input="And?"))["status"] == "completed"
