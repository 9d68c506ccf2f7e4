"""A token budget for reasoning: reasoning is closed when it is spent, and the turn continues after it."""

import json
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import Asking
from tests.doubles.apis.chat_asking import completion_of
from tests.doubles.engines.replay import TurnsEngine
from tests.doubles.harmony.sampling import RandomEngine
from tests.responses.conftest import PYTHON, with_tool

REASONING = "First 東京, then 🧠👩‍🚀; and so on, for a while."
THINKS = f"<|channel|>analysis<|message|>{REASONING}<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Four.<|return|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
CLOSING = "<|end|><|start|>assistant"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
BUDGET: dict[str, Any] = {"reasoning": {"max_tokens": 2}}
FOUR = ("message", "Four.")


def texts_of(response: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (item["type"], "".join(part["text"] for part in item["content"]))
        for item in response["output"]
        if "content" in item
    ]


def reasoning_of(response: dict[str, Any]) -> str:
    return "".join(text for kind, text in texts_of(response) if kind == "reasoning")


@pytest.mark.parametrize("per_step", [1, 7, 100])
@pytest.mark.parametrize("budget", [0, 1, 2, 3, 4, 5, 8, 11, 30])
async def test_reasoning_ends_with_its_budget(encoding: Encoding, budget: int, per_step: int) -> None:
    more = () if budget >= len(encoding.encode(REASONING)) else (ANSWER,)
    engine = TurnsEngine(encoding, THINKS + ANSWER, *more, per_step=per_step)
    response = await Asking(engine=engine)(reasoning={"max_tokens": budget})
    assert (texts_of(response)[-1], response["status"]) == (FOUR, "completed")
    kept = reasoning_of(response)
    assert REASONING.startswith(kept), "never half a character"
    assert budget <= len(encoding.encode(kept)) <= budget + 3 or kept == REASONING
    assert engine.open == 0
    if len(engine.prompts) > 1:
        first, second = engine.prompts
        head = encoding.decode(second[len(first) :])
        assert head == f"<|channel|>analysis<|message|>{kept}{CLOSING}"
        assert second[: len(first)] == first, "sampled tokens are appended, never rendered again"


async def test_the_closing_tokens_are_output_and_count_against_the_limit(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER)
    usage = (await Asking(engine=engine)(**BUDGET, max_output_tokens=100))["usage"]
    head, closing, answer = 3, 3, len(encoding.encode_special(ANSWER))
    assert usage["output_tokens"] == head + 2 + closing + answer
    assert usage["output_tokens_details"]["reasoning_tokens"] == head + 2 + 1
    cached = usage["input_tokens_details"]["cached_tokens"]
    assert cached == usage["input_tokens"] - 1, "the prompt counts once"
    assert engine.samplings[1].max_tokens == 100 - head - 2 - closing


@pytest.mark.parametrize("limit", range(1, 17))
async def test_the_output_limit_holds_while_reasoning_is_closed(encoding: Encoding, limit: int) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER)
    response = await Asking(engine=engine)(**BUDGET, max_output_tokens=limit)
    needed = 3 + 2 + 3 + len(encoding.encode_special(ANSWER))
    assert response["usage"]["output_tokens"] == min(limit, needed)
    assert response["status"] == ("completed" if limit >= needed else "incomplete")
    assert engine.open == 0


@pytest.mark.parametrize("last", [("Four.<|return|>",), ()], ids=["obeys", "reasons even then"])
async def test_a_model_that_reasons_again_is_forced_to_answer(encoding: Encoding, last: Any) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, THINKS + ANSWER, *last)
    response = await Asking(engine=engine)(**BUDGET, max_output_tokens=500)
    texts = texts_of(response)
    assert (response["status"], texts[-1], len(engine.prompts)) == ("completed", FOUR, 3)
    assert not last or [kind for kind, _ in texts] == ["reasoning", "message"]


async def test_after_a_tools_result_the_model_may_call_again(encoding: Encoding) -> None:
    python = "<|channel|>analysis to=python code<|message|>1+1<|call|>"
    turns = [THINKS + python, python] * 3 + [THINKS + ANSWER, ANSWER]
    response = await with_tool(TurnsEngine(encoding, *turns))(tools=[PYTHON], reasoning={"max_tokens": 0})
    assert [item["type"] for item in response["output"]] == ["code_interpreter_call"] * 3 + ["message"]


async def test_a_script_ignores_the_budget() -> None:
    response = await Asking(THINKS + ANSWER, "never")(reasoning={"effort": "none"})
    assert texts_of(response) == [("reasoning", REASONING), FOUR]


async def test_a_call_may_follow_and_the_next_turn_keeps_its_reasoning(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THINKS + CALL, CALL, ANSWER)
    ask = Asking(engine=engine)
    first = await ask(**BUDGET, tools=[TOOL])
    reasoning, made = first["output"]
    assert (reasoning["type"], made["type"]) == ("reasoning", "function_call")
    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "4"}
    await ask(**BUDGET, tools=[TOOL], input=[output], previous_response_id=first["id"])
    shown = encoding.decode(engine.prompts[2])
    assert encoding.decode(engine.prompts[1])[-80:] in shown, "exactly the same tokens"
    assert "to=functions.f" in shown


@pytest.mark.parametrize("options", [BUDGET, {"thinking_token_budget": 2}], ids=str)
async def test_chat_has_the_same_budget_under_both_names(encoding: Encoding, options: Any) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER, per_step=7)
    (choice,) = (await completion_of(engine, logprobs=True, **options))["choices"]
    assert choice["message"]["content"] == "Four."
    assert choice["message"]["reasoning"] == encoding.decode(encoding.encode(REASONING)[:2])
    assert "".join(score["token"] for score in choice["logprobs"]["content"]) == "Four."


EFFORTS = [
    # effort, effort in the prompt, reasoning tokens in a long turn
    ("none", "low", 0),
    ("minimal", "low", 128),
    *((effort, effort, None) for effort in ("low", "medium", "high")),
    *((effort, "high", None) for effort in ("xhigh", "max")),
]


@pytest.mark.parametrize(("effort", "shown", "budget"), EFFORTS)
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_every_effort_maps(encoding: Encoding, api: str, effort: str, shown: str, budget: Any) -> None:
    long = THINKS.replace(REASONING, "so " * 500)
    engine = TurnsEngine(encoding, long + ANSWER, *([] if budget is None else [ANSWER]), per_step=64)
    if api == "chat":
        message = (await completion_of(engine, reasoning_effort=effort))["choices"][0]["message"]
        reasoning = message.get("reasoning", "")
    else:
        response = await Asking(engine=engine)(reasoning={"effort": effort})
        assert response["reasoning"]["effort"] == effort, "echoed as it was requested"
        reasoning = reasoning_of(response)
    assert f"Reasoning: {shown}\n" in encoding.decode(engine.prompts[0])
    whole = len(encoding.encode("so " * 500))
    assert len(encoding.encode(reasoning)) == (whole if budget is None else budget)


@pytest.mark.parametrize(
    ("settings", "options", "budget"),
    [
        ({"default_reasoning_budget": 4}, {}, 4),
        ({"default_reasoning_budget": 4}, {"max_tokens": 6}, 6),
        ({"default_reasoning_budget": 4}, {"effort": "none"}, 0),
        ({"default_reasoning_budget": 4}, {"effort": "minimal"}, 4),
        ({"default_reasoning_effort": "none"}, {}, 0),
        ({}, {"effort": "none", "max_tokens": 5}, 5),
    ],
)
async def test_the_requests_budget_wins(encoding: Encoding, settings: Any, options: Any, budget: int) -> None:
    engine = TurnsEngine(encoding, THINKS.replace(REASONING, "so " * 20) + ANSWER, ANSWER)
    response = await Asking(engine=engine, settings=Settings(**settings))(reasoning=options)
    assert len(encoding.encode(reasoning_of(response))) == budget


@pytest.mark.parametrize("budget", [0, 1, 3])
async def test_with_a_grammar_the_turn_stays_well_formed(encoding: Encoding, budget: int) -> None:
    closed = {"required": ["n"], "additionalProperties": False}
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, **closed}
    form = {"type": "json_schema", "name": "n", "schema": schema}
    ask = Asking(engine=RandomEngine(encoding, budget))
    for _ in range(20):
        response = await ask(reasoning={"max_tokens": budget}, text={"format": form})
        assert response["status"] == "completed"
        assert budget or not reasoning_of(response)
        assert set(json.loads(response["output"][-1]["content"][0]["text"])) == {"n"}
    assert not ask.service.served.counters.slips


async def test_a_required_call_follows_closed_reasoning_too(encoding: Encoding) -> None:
    ask = Asking(engine=RandomEngine(encoding, 3))
    for _ in range(10):
        response = await ask(**BUDGET, tools=[TOOL], tool_choice="required", max_output_tokens=2_000)
        assert response["status"] == "incomplete" or response["output"][-1]["type"] == "function_call"
