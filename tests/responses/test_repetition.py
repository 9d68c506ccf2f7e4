"""A turn that repeats itself ends: repeated calls are dropped, cycles of tokens make it incomplete."""

import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import FINAL, NEXT, Asking, call
from tests.doubles.apis.chat_asking import completion_of
from tests.doubles.apis.client_tools import FREE, OSLO, PARIS, TOOL, arguments
from tests.doubles.engines.replay import ReplayEngine, TurnsEngine
from tests.doubles.serving import scripted
from tests.doubles.tools.scripted_tool import Calculator, CalculatorSession
from tests.responses.conftest import PYTHON, with_tool
from tools.tool import Session, ToolCall, ToolOutput

SUM = "<|channel|>analysis to=python code<|message|>1+1<|call|>"
LOOP = "<|channel|>final<|message|>Well" + " and so on" * 2_000
DEBUG = {"__debug": "true"}
PARALLEL: dict[str, Any] = {"tools": [TOOL], "parallel_tool_calls": True}


def warnings_of(response: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in json.loads(response["metadata"]["__debug_warnings"])]


def looping(text: str = LOOP, loops: bool = True, **options: Any) -> ReplayEngine:
    engine = ReplayEngine(load_encoding().encode_special(text), **options)
    engine.info = replace(engine.info, loops=loops)
    return engine


@pytest.mark.parametrize("per_step", [1, 3, 1000])
async def test_a_repeated_call_ends_the_generation_before_anybody_sees_it(per_step: int) -> None:
    calls = NEXT.join([OSLO, PARIS, *[OSLO] * 70])
    ask = Asking(engine=ReplayEngine(load_encoding().encode_special(calls), per_step=per_step))
    response = await ask(**PARALLEL, metadata=DEBUG)
    assert arguments(response) == ['{"c":"Oslo"}', '{"c":"Paris"}']
    assert (response["status"], response["incomplete_details"]) == ("completed", None)
    assert warnings_of(response) == ["repeated_call"]
    assert "Oslo" not in "".join(event.get("delta", "") for event in ask.events[-6:])
    # Its tokens were sampled, and belong to no message.
    sampled = load_encoding().encode_special(NEXT.join([OSLO, PARIS, OSLO]))
    assert response["usage"]["output_tokens"] == len(sampled)
    outputs = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "rain"}
        for item in response["output"]
    ]
    prompt = await ask.prompt(input=outputs, tools=[TOOL], previous_response_id=response["id"])
    assert prompt.count(OSLO) == 1


async def test_a_call_that_only_begins_like_another_is_streamed_in_full() -> None:
    longer = OSLO.replace("Oslo", "Oslo, Norway")
    ask = Asking(NEXT.join([OSLO, longer, call("functions.g", '{"c":"Oslo"}'), PARIS]))
    response = await ask(tools=[TOOL, FREE], parallel_tool_calls=True, metadata=DEBUG)
    assert arguments(response)[:2] == ['{"c":"Oslo"}', '{"c":"Oslo, Norway"}']
    assert len(arguments(response)) == 4
    assert warnings_of(response) == ["undeclared_recipient"]


@pytest.mark.parametrize("status", ["incomplete", "failed"])
async def test_a_repeated_call_that_does_not_end_is_shown(status: str) -> None:
    tokens = load_encoding().encode_special(OSLO + NEXT + OSLO)
    end = len(tokens) - 2
    ask = Asking(engine=ReplayEngine(tokens, fails_after=end if status == "failed" else None))
    response = await ask(**PARALLEL, max_output_tokens=None if status == "failed" else end)
    assert response["status"] == status
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


async def test_the_operator_bounds_the_calls_of_a_generation() -> None:
    many = NEXT.join(call("functions.f", f'{{"c":"{number}"}}') for number in range(40))
    for settings, most in ((Settings(), 16), (Settings(max_parallel_calls=3), 3)):
        response = await Asking(many, settings=settings)(**PARALLEL, metadata=DEBUG)
        assert (len(arguments(response)), response["status"]) == (most, "completed")
        assert warnings_of(response) == ["too_many_calls"]


async def test_a_built_in_tool_does_not_run_twice_for_a_repeated_call() -> None:
    ask = with_tool(scripted(SUM + NEXT + SUM, FINAL.format("Done.")))
    response = await ask(tools=[PYTHON], parallel_tool_calls=True, include=["code_interpreter_call.outputs"])
    ran, message = response["output"]
    assert ran["outputs"][0]["logs"] == "2 (call 1)"
    assert message["content"][0]["text"] == "Done."


async def test_rounds_of_a_tool_that_change_nothing_end_the_turn(encoding: Encoding) -> None:
    class Polled(CalculatorSession):
        async def run(self, call: ToolCall) -> ToolOutput:
            return ToolOutput("running", details={"outputs": [{"type": "logs", "logs": "running"}]})

    class Slow(Calculator):
        def open(self) -> Session:
            return Polled(self)

    engine = TurnsEngine(encoding, SUM)  # forever
    response = await with_tool(engine, Slow())(tools=[PYTHON])
    assert response["status"] == "incomplete"
    assert "the same call of python 8 times" in response["incomplete_details"]["message"]
    assert len(engine.prompts) == len(response["output"]) == 8


async def test_a_message_that_is_repeated_ends_the_turn_unless_it_ends_by_itself() -> None:
    preamble = "<|channel|>commentary<|message|>I will look.<|end|>" + NEXT
    response = await Asking(preamble * 50 + FINAL.format("x"))(metadata=DEBUG)
    assert response["status"] == "incomplete"
    assert [item["phase"] for item in response["output"]] == ["commentary"] * 3
    assert warnings_of(response) == ["repetition"]
    assert (await Asking(preamble * 3 + FINAL.format("x"))())["status"] == "completed"
    ends = TurnsEngine(load_encoding(), FINAL.format(" and so on" * 90), per_step=1000)
    assert (await Asking(engine=ends)())["status"] == "completed"


async def test_a_cycle_of_tokens_ends_a_generation_as_incomplete(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ask = Asking(engine=looping())
        response = await ask(metadata=DEBUG)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"]["reason"] == "max_output_tokens"
    assert "repeated the same 3 tokens" in response["incomplete_details"]["message"]
    assert response["output"][0]["status"] == "incomplete"
    assert 256 <= response["usage"]["output_tokens"] <= 300
    assert warnings_of(response) == ["repetition"]
    assert "--repetition-limit" in caplog.text
    assert ask.service.served.counters.slips["repetition"] == 1


@pytest.mark.parametrize(
    ("loops", "limit", "most"),
    [(True, None, 9_000), (False, "auto", 9_000), (False, 64, 110), (True, 512, 560)],
)
async def test_the_operator_sets_the_limit(loops: bool, limit: Any, most: int) -> None:
    engine = looping(loops=loops)
    response = await Asking(engine=engine, settings=Settings(repetition_limit=limit))()
    used = response["usage"]["output_tokens"]
    assert used <= most
    assert (used == len(engine.tokens)) == (most == 9_000)


@pytest.mark.parametrize("limit", [64, None])
async def test_a_cycle_across_the_calls_of_a_client_ends_its_turn(
    encoding: Encoding, limit: int | None
) -> None:
    """Each result differs, as those of Codex do, which state when the call was made."""
    polls = f"<|channel|>analysis<|message|>I look whether it is done.<|end|>{NEXT}{OSLO}"
    settings = Settings(repetition_limit=limit, store="memory")
    ask = Asking(engine=TurnsEngine(encoding, polls), settings=settings)
    response, rounds = await ask(tools=[TOOL]), 1
    while response["status"] == "completed" and rounds < 12:
        call_id = response["output"][-1]["call_id"]
        result = {"type": "function_call_output", "call_id": call_id, "output": f"Not at {rounds} s."}
        response = await ask(input=[result], tools=[TOOL], previous_response_id=response["id"])
        rounds += 1
    assert (rounds, response["status"]) == ((4, "incomplete") if limit else (12, "completed"))
    if limit:
        assert "over and over" in response["incomplete_details"]["message"]
        message = {"role": "user", "content": "Go on."}
        response = await ask(input=[message], tools=[TOOL], previous_response_id=response["id"])
        assert response["status"] == "completed", "a question begins anew"


@pytest.mark.parametrize(
    ("loops", "setting", "expected"),
    [(True, "auto", 16_384), (False, "auto", None), (True, None, None), (False, 77, 77)],
)
async def test_a_model_that_loops_has_an_output_limit(loops: bool, setting: Any, expected: Any) -> None:
    engine = looping(FINAL.format("x"), loops)
    await Asking(engine=engine, settings=Settings(default_max_output_tokens=setting))()
    rest = engine.info.context_length - len(engine.prompts[0])
    assert engine.samplings[0].max_tokens == (expected or rest)


@pytest.mark.parametrize(
    ("field", "value", "least", "most"),
    [("ignore_eos", True, 6_000, 7_000), ("min_tokens", 1_000, 1_000, 1_200), ("min_tokens", 10, 10, 110)],
)
async def test_a_request_for_a_fixed_length_gets_it(field: str, value: Any, least: int, most: int) -> None:
    response = await Asking(engine=looping(), settings=Settings(repetition_limit=64))(**{field: value})
    assert least <= response["usage"]["output_tokens"] < most


THOUGHT = "<|channel|>analysis<|message|>It rains.<|return|>"


@pytest.mark.parametrize("then", [FINAL.format("Rain."), OSLO])
async def test_a_turn_that_ends_after_its_reasoning_goes_on_once(encoding: Encoding, then: str) -> None:
    engine = TurnsEngine(encoding, THOUGHT, then)
    ask = Asking(engine=engine)
    response = await ask(tools=[TOOL], metadata=DEBUG)
    kind = "message" if then != OSLO else "function_call"
    assert response["status"] == "completed"
    assert [item["type"] for item in response["output"]] == ["reasoning", kind]
    assert warnings_of(response) == ["asked_again"]
    prompts = [encoding.decode(prompt) for prompt in engine.prompts]
    assert prompts[1] == prompts[0] + THOUGHT.replace("return", "end") + NEXT
    assert response["metadata"]["__debug_output"] == THOUGHT + NEXT + then
    assert response["usage"]["output_tokens"] == len(encoding.encode_special(THOUGHT + then))
    assert ask.service.served.counters.slips["asked_again"] == 1


async def test_a_turn_without_an_answer_is_incomplete(encoding: Encoding) -> None:
    response = await Asking(engine=TurnsEngine(encoding, THOUGHT))(metadata=DEBUG)
    assert [item["type"] for item in response["output"]] == ["reasoning", "reasoning"]
    assert response["status"] == "incomplete"
    assert "gave no answer" in response["incomplete_details"]["message"]
    assert warnings_of(response) == ["asked_again", "no_answer"]
    [choice] = (await completion_of(TurnsEngine(encoding, THOUGHT)))["choices"]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("length", "no_answer")


async def test_a_turn_of_reasoning_without_room_for_more_is_incomplete(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THOUGHT, FINAL.format("Rain."))
    response = await Asking(engine=engine)(max_output_tokens=len(encoding.encode_special(THOUGHT)))
    assert (response["status"], len(engine.prompts)) == ("incomplete", 1)
