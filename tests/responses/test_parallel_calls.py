"""Hosted tools run within a response, and several calls in one generation, if the request allows them."""

import asyncio
import json
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.errors import ToolNotAvailable
from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from tests.doubles.apis.asking import FINAL, NEXT, Asking
from tests.doubles.apis.client_tools import CRM, CUSTOM, DIGITS, LARK, OSLO, PARIS, SHELL, TOOL, arguments
from tests.doubles.engines.replay import ReplayEngine, TurnsEngine
from tests.doubles.harmony.sampling import RandomEngine
from tests.doubles.random_tests.seeds import seeds
from tests.doubles.serving import scripted
from tests.responses.conftest import PYTHON, with_tool

THINKS = "<|channel|>analysis<|message|>Both.<|end|>" + NEXT
ANSWERED = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>{}<|end|>"
RAN = "<|start|>python to=assistant<|channel|>analysis<|message|>{}<|end|>"
IMAGINED = ANSWERED.format('{"t":7}') + NEXT
SUM = "<|channel|>analysis to=python code<|message|>{}<|call|>"
TWO, THREE = SUM.format("1+1"), SUM.format("1+2")
ANSWER = FINAL.format("Done.")


@pytest.mark.parametrize("allowed", [True, False, None])
async def test_only_a_request_that_allows_it_gets_more_than_one_call(allowed: bool | None) -> None:
    ask = Asking(THINKS + OSLO + NEXT + PARIS)
    response = await ask(tools=[TOOL], parallel_tool_calls=allowed)
    assert response["status"] == "completed"
    assert arguments(response) == (['{"c":"Oslo"}', '{"c":"Paris"}'] if allowed else ['{"c":"Oslo"}'])
    assert response["parallel_tool_calls"] is (allowed is not False)


@pytest.mark.parametrize(
    "after",
    ["", IMAGINED + ANSWER, "<|return|>", "<|endoftext|>", "<|start|>", "<|start|>user", "commentary", NEXT],
    ids=["nothing", "its answer", "return", "endoftext", "start", "a user", "words", "a cue alone"],
)
async def test_text_after_the_last_call_is_ignored(after: str) -> None:
    for per_step in (1, 3, 100):
        tokens = load_encoding().encode_special(OSLO + NEXT + PARIS + after)
        ask = Asking(engine=ReplayEngine(tokens, per_step=per_step))
        response = await ask(tools=[TOOL], parallel_tool_calls=True, metadata={"__debug": True})
        assert arguments(response) == ['{"c":"Oslo"}', '{"c":"Paris"}']
        assert [item["type"] for item in response["output"]] == ["function_call"] * 2
        assert "call_end" not in response["metadata"]["__debug_warnings"]
        assert response["status"] == "completed"


async def test_one_generation_makes_all_calls_without_call_as_a_stop_id() -> None:
    engine = ReplayEngine(load_encoding().encode_special(OSLO + NEXT + PARIS))
    response = await Asking(engine=engine)(tools=[TOOL], parallel_tool_calls=True)
    assert len(arguments(response)) == 2
    (sampling,) = engine.samplings
    assert sampling.stop_token_ids == {200002, 199999}
    assert response["usage"]["output_tokens"] == len(engine.tokens)
    for body in ({"tools": [TOOL]}, {"parallel_tool_calls": True}):  # not requested, and no tool to call
        await Asking(engine=engine)(**body)
        assert engine.samplings[-1].stop_token_ids == {200002, 200012, 199999}


async def test_calls_and_their_outputs_become_history() -> None:
    ask = Asking(THINKS + OSLO + NEXT + PARIS)
    response = await ask(tools=[TOOL], parallel_tool_calls=True)
    _, *calls = response["output"]
    outputs = [
        {"type": "function_call_output", "call_id": made["call_id"], "output": str(at)}
        for at, made in enumerate(calls)
    ]
    prompt = await ask.prompt(input=outputs, tools=[TOOL], previous_response_id=response["id"])
    answers = "".join(ANSWERED.format(at) for at in (0, 1))
    assert prompt.endswith(NEXT + THINKS + OSLO + NEXT + PARIS + answers + NEXT)
    assert await ask.prompt(input=["Hi", *response["output"], *outputs], tools=[TOOL]) == prompt


@pytest.mark.parametrize("per_step", [1, 2, 100])
async def test_hosted_tools_run_in_order_and_the_model_continues(encoding: Encoding, per_step: int) -> None:
    engine = TurnsEngine(encoding, TWO + NEXT + THREE, ANSWER, per_step=per_step)
    ask = with_tool(engine)
    more = {"include": ["code_interpreter_call.outputs"], "metadata": {"__debug": True}}
    response = await ask(tools=[PYTHON], parallel_tool_calls=True, **more)
    first, second, message = response["output"]
    assert [made["outputs"][0]["logs"] for made in (first, second)] == ["2 (call 1)", "3 (call 2)"]
    assert message["content"][0]["text"] == "Done."
    assert len(engine.prompts) == 2
    whole = TWO + NEXT + THREE + RAN.format("2 (call 1)") + RAN.format("3 (call 2)") + NEXT + ANSWER
    assert response["metadata"]["__debug_output"] == whole
    prompt = await ask.prompt(input="More", previous_response_id=response["id"])
    assert whole.replace("<|return|>", "<|end|>") in prompt


@pytest.mark.parametrize("turn", [TWO + NEXT + OSLO, OSLO + NEXT + TWO], ids=["server's", "client's"])
async def test_with_a_client_call_the_hosted_call_runs_and_the_turn_ends(turn: str) -> None:
    ask = with_tool(scripted(turn, FINAL.format("too early")))
    more: dict[str, Any] = {"tools": [PYTHON, TOOL], "parallel_tool_calls": True}
    response = await ask(**more)
    made = {item["type"]: item for item in response["output"]}
    assert set(made) == {"code_interpreter_call", "function_call"}
    assert made["code_interpreter_call"]["status"] == "completed"
    output = {"type": "function_call_output", "call_id": made["function_call"]["call_id"], "output": "rain"}
    prompt = await ask.prompt(input=[output], previous_response_id=response["id"], **more)
    assert prompt.endswith(NEXT + turn + RAN.format("2 (call 1)") + ANSWERED.format("rain") + NEXT)


async def test_a_cut_at_any_token_keeps_the_complete_calls() -> None:
    tokens = load_encoding().encode_special(THINKS + OSLO + NEXT + PARIS)
    whole = len(load_encoding().encode_special(THINKS + OSLO))
    for limit in range(1, len(tokens) + 1):
        ask = Asking(engine=ReplayEngine(tokens, per_step=limit % 5 + 1))
        response = await ask(tools=[TOOL], parallel_tool_calls=True, max_output_tokens=limit)
        calls = [item for item in response["output"] if item["type"] == "function_call"]
        assert response["usage"]["output_tokens"] == limit
        # Before the second call has begun, nothing is cut.
        between = whole <= limit <= whole + 1 or limit == len(tokens)
        assert (response["status"] == "completed") == between
        complete = [made for made in calls if made["status"] == "completed"]
        assert len(complete) == (limit >= whole) + (limit == len(tokens))


@pytest.mark.parametrize("seed", seeds(1, proofs=3))
async def test_a_bound_model_makes_only_valid_calls(encoding: Encoding, seed: int) -> None:
    ask = Asking(engine=RandomEngine(encoding, seed, encoding.encode_special("<|start|>assistant")))
    body: dict[str, Any] = {"tools": [TOOL, DIGITS, CRM, SHELL, CUSTOM], "tool_choice": "required"}
    body |= {"parallel_tool_calls": True, "max_output_tokens": 800, "metadata": {"__debug": True}}
    lark, several = Grammars(encoding), 0
    compiled = lark.compile(LARK)
    for _ in range(10):
        response = await ask(**body)
        assert response["metadata"]["__debug_warnings"] == "[]" or response["status"] == "incomplete"
        calls = [item for item in response["output"] if item["type"].endswith("_call")]
        several += len(calls) > 1
        for item in calls:
            if item.get("status") == "completed" and item.get("name") == "apply_patch":
                assert lark.matches(compiled, item["input"])
    assert several, "no turn had several calls"


FOUR = SUM.format("2+2")
BODY: dict[str, Any] = {"input": "2+2?", "metadata": {"__debug": True}, "tools": [PYTHON]}


def asking(*turns: str, timeout: float = 5, loop: bool = False) -> Asking:
    return with_tool(scripted(*turns, loop=loop), timeout=timeout)


async def test_a_call_runs_and_the_turn_continues_with_its_result(encoding: Encoding) -> None:
    ask = asking(FOUR, ANSWER)
    response = await ask(**BODY, include=["code_interpreter_call.outputs"])
    call, message = response["output"]
    assert (call["type"], call["code"]) == ("code_interpreter_call", "2+2")
    assert call["outputs"] == [{"type": "logs", "logs": "4 (call 1)"}]
    assert message["content"][0]["text"] == "Done."
    kinds = [e["type"].removeprefix("response.") for e in ask.events if e.get("output_index") == 0]
    written = [*["code_interpreter_call_code.delta"] * 3, "code_interpreter_call_code.done"]
    steps = ["code_interpreter_call.interpreting", "code_interpreter_call.completed"]
    begun = ["output_item.added", "code_interpreter_call.in_progress"]
    assert kinds == [*begun, *written, *steps, "output_item.done"]
    result = "<|call|><|start|>python to=assistant<|channel|>analysis<|message|>4 (call 1)<|end|>"
    assert result in response["metadata"]["__debug_output"]
    assert response["usage"]["output_tokens"] == len(encoding.encode_special(FOUR + ANSWER))
    whole = encoding.encode_special(response["metadata"]["__debug"])
    assert response["usage"]["total_tokens"] == len(whole)
    counted = ask.service.served.tool_counters()["python"]
    assert (counted["calls"], counted["failures"]) == (1, 0)
    assert counted["seconds"] > 0


async def test_a_tools_state_lives_as_long_as_the_conversation() -> None:
    ask = asking(FOUR, ANSWER, loop=True)
    first = await ask(**BODY)
    second = await ask(**BODY, previous_response_id=first["id"])
    assert "4 (call 1)" in first["metadata"]["__debug_output"]
    assert "4 (call 2)" in second["metadata"]["__debug_output"]
    assert "4 (call 1)" in second["metadata"]["__debug_input"]
    assert "4 (call 1)" in (await ask(**BODY, store=False))["metadata"]["__debug_output"]


@pytest.mark.parametrize("turns", [(FOUR, TWO), (TWO + NEXT + THREE,)], ids=["in turn", "parallel"])
async def test_a_call_over_the_limit_fails_and_the_turn_continues(turns: tuple[str, ...]) -> None:
    response = await asking(*turns, ANSWER)(**BODY, max_tool_calls=1, parallel_tool_calls=True)
    assert [item.get("status") for item in response["output"]] == ["completed", "failed", "completed"]


async def test_a_call_cut_at_every_token_ends_well(encoding: Encoding) -> None:
    total = len(encoding.encode_special(FOUR + ANSWER))
    for cut in range(1, total + 1):
        response = await asking(FOUR, ANSWER)(**BODY, max_output_tokens=cut)
        assert response["status"] == ("completed" if cut == total else "incomplete")
        assert response["usage"]["output_tokens"] == cut


SLIPS = [
    "<|channel|>commentary to=python code<|message|>2+2<|call|>",
    "<|channel|>commentary to=functions.python code<|message|>2+2<|call|>",
    FOUR.replace("<|call|>", "<|end|>") + "<|start|>assistant<|channel|>final<|message|>5<|return|>",
    FOUR.removesuffix("<|call|>"),
]


@pytest.mark.parametrize("turn", SLIPS)
async def test_calls_with_slips_still_run(turn: str) -> None:
    response = await asking(turn, ANSWER)(**BODY)
    call, message = response["output"]
    assert (call["type"], message["content"][0]["text"]) == ("code_interpreter_call", "Done.")
    assert turn != SLIPS[1] or json.loads(response["metadata"]["__debug_warnings"])[0]["kind"]


async def test_a_call_to_a_tool_that_is_not_enabled_goes_to_the_client() -> None:
    call = (await asking(FOUR)(input="2+2?"))["output"][0]
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "python", "2+2")


async def test_a_disabled_tool_is_refused_with_the_setting_that_enables_it() -> None:
    ask, search = asking(ANSWER), {"type": "web_search"}
    with pytest.raises(ToolNotAvailable, match="--browser"):
        await ask(tools=[search])
    assert await ask.prompt(tools=[{**search, "external_web_access": False}])


async def test_a_client_that_disconnects_stops_the_running_tool() -> None:
    run = await asking(SUM.format("sleep"), ANSWER, timeout=30).service.start(LOCAL, BODY)
    waiting = asyncio.ensure_future(run.wait())
    await asyncio.sleep(0.2)
    waiting.cancel()
    began = asyncio.get_running_loop().time()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.get_running_loop().time() - began < 2
