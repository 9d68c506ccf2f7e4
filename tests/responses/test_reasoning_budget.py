"""A token budget for reasoning: reasoning is closed when it is spent, and the turn continues after it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from gpt_oss_server.apis.responses.request import parse_request
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset
from inference.engine import Engine, EngineInfo, Finish, Sampling, Step
from tests.doubles.apis.chat_asking import completion_of
from tests.doubles.apis.services import responses_service
from tests.doubles.harmony.sampling import RandomModel, closing_tokens
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.doubles.tools.calculator import Calculator, Ready
from tests.doubles.turns import TurnsEngine
from tools.toolbox import Offer, Toolbox

REASONING = "First 東京, then 🧠👩‍🚀; and so on, for a while."
THINKS = f"<|channel|>analysis<|message|>{REASONING}<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Four.<|return|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
CLOSING = "<|end|><|start|>assistant"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


async def run_of(engine: Engine, settings: Settings | None = None, **body: Any) -> Run:
    run = await responses_service(engine, settings).start(LOCAL, {"input": "2 + 2?", **body})
    check_stream([event async for batch in run.events() for event in batch])
    return run


def texts_of(run: Run) -> list[tuple[str, str]]:
    return [
        (item["type"], "".join(part["text"] for part in item["content"]))
        for item in run.response["output"]
        if "content" in item
    ]


@pytest.mark.parametrize("per_step", [1, 7, 100])
@pytest.mark.parametrize("budget", [0, 1, 2, 3, 4, 5, 8, 11, 30])
async def test_reasoning_ends_when_its_budget_is_spent(
    encoding: Encoding, budget: int, per_step: int
) -> None:
    whole = encoding.encode(REASONING)
    engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER, per_step=per_step)
    if budget >= len(whole):
        engine = TurnsEngine(encoding, THINKS + ANSWER, per_step=per_step)
    run = await run_of(engine, reasoning={"max_tokens": budget})
    *reasoning, (kind, answer) = texts_of(run)
    assert (kind, answer, run.response["status"]) == ("message", "Four.", "completed")
    kept = "".join(text for _, text in reasoning)
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
    run = await run_of(engine, reasoning={"max_tokens": 2}, max_output_tokens=100)
    head, closing, answer = 3, 3, len(encoding.encode_special(ANSWER))
    usage = run.response["usage"]
    assert usage["output_tokens"] == head + 2 + closing + answer
    assert usage["output_tokens_details"]["reasoning_tokens"] == head + 2 + 1
    assert usage["input_tokens_details"]["cached_tokens"] == usage["input_tokens"] - 1, (
        "the prompt counts once"
    )
    assert engine.samplings[1].max_tokens == 100 - head - 2 - closing


@pytest.mark.parametrize("limit", range(1, 17))
async def test_the_output_limit_holds_wherever_the_reasoning_is_closed(
    encoding: Encoding, limit: int
) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER)
    run = await run_of(engine, reasoning={"max_tokens": 2}, max_output_tokens=limit)
    needed = 3 + 2 + 3 + len(encoding.encode_special(ANSWER))
    assert run.response["usage"]["output_tokens"] == min(limit, needed)
    assert run.response["status"] == ("completed" if limit >= needed else "incomplete")
    assert engine.open == 0


async def test_a_model_that_reasons_again_is_forced_to_answer(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, THINKS + ANSWER, "Four.<|return|>")
    run = await run_of(engine, reasoning={"max_tokens": 2})
    assert [kind for kind, _ in texts_of(run)] == ["reasoning", "message"]
    assert texts_of(run)[-1] == ("message", "Four.")
    assert len(engine.prompts) == 3


async def test_a_model_that_reasons_even_then_may_continue(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER)
    run = await run_of(engine, reasoning={"max_tokens": 2}, max_output_tokens=500)
    assert run.response["status"] == "completed"
    assert texts_of(run)[-1] == ("message", "Four.")
    assert len(engine.prompts) == 3


async def test_after_a_tools_result_the_model_may_call_again(encoding: Encoding) -> None:
    python = "<|channel|>analysis to=python code<|message|>1+1<|call|>"
    turns = [THINKS + python, python] * 3 + [THINKS + ANSWER, ANSWER]
    toolset = Toolset(Toolbox([Offer(Calculator())]))
    service = responses_service(TurnsEngine(encoding, *turns), tools=Ready(toolset))
    body = {"input": "hi", "tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]}
    run = await service.start(LOCAL, {**body, "reasoning": {"max_tokens": 0}})
    response = await run.wait()
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["code_interpreter_call"] * 3 + ["message"]


async def test_a_script_ignores_the_budget() -> None:
    run = await run_of(scripted(THINKS + ANSWER, "never"), reasoning={"effort": "none"})
    assert texts_of(run) == [("reasoning", REASONING), ("message", "Four.")]


async def test_a_call_may_follow_and_the_next_turn_keeps_its_reasoning(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THINKS + CALL, CALL, ANSWER)
    service = responses_service(engine)
    body = {"input": "2 + 2?", "tools": [TOOL], "reasoning": {"max_tokens": 3}}
    run = await service.start(LOCAL, body)
    await run.wait()
    assert [item["type"] for item in run.response["output"]] == ["reasoning", "function_call"]
    call_id = run.response["output"][1]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "4"}
    await (
        await service.start(LOCAL, {**body, "input": [output], "previous_response_id": run.response["id"]})
    ).wait()
    shown = encoding.decode(engine.prompts[2])
    assert encoding.decode(engine.prompts[1])[-80:] in shown, "exactly the same tokens"
    assert "to=functions.f" in shown


async def test_chat_has_the_same_budget_under_both_names(encoding: Encoding) -> None:
    for options in ({"reasoning": {"max_tokens": 2}}, {"thinking_token_budget": 2}):
        engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER)
        message = (await completion_of(engine, **options))["choices"][0]["message"]
        assert message["content"] == "Four."
        assert message["reasoning"] == encoding.decode(encoding.encode(REASONING)[:2])


async def test_scores_stay_with_their_text(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER, ANSWER, per_step=7)
    completion = await completion_of(engine, reasoning={"max_tokens": 2}, logprobs=True)
    choice = completion["choices"][0]
    assert "".join(entry["token"] for entry in choice["logprobs"]["content"]) == "Four."


EFFORTS = [
    # effort, effort in the prompt, reasoning tokens in a long turn
    ("none", "low", 0),
    ("minimal", "low", 128),
    ("low", "low", None),
    ("medium", "medium", None),
    ("high", "high", None),
    ("xhigh", "high", None),
    ("max", "high", None),
]


@pytest.mark.parametrize(("effort", "shown", "budget"), EFFORTS)
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_every_effort_maps_to_harmonys_and_the_lowest_two_have_a_budget(
    encoding: Encoding, api: str, effort: str, shown: str, budget: int | None
) -> None:
    long = THINKS.replace(REASONING, "so " * 500)
    engine = TurnsEngine(encoding, long + ANSWER, *([] if budget is None else [ANSWER]), per_step=64)
    if api == "chat":
        message = (await completion_of(engine, reasoning_effort=effort))["choices"][0]["message"]
        reasoning = message.get("reasoning", "")
    else:
        run = await run_of(engine, reasoning={"effort": effort})
        assert run.response["reasoning"]["effort"] == effort, "echoed as it was requested"
        reasoning = "".join(text for kind, text in texts_of(run) if kind == "reasoning")
    assert f"Reasoning: {shown}\n" in encoding.decode(engine.prompts[0])
    assert len(encoding.encode(reasoning)) == (
        len(encoding.encode("so " * 500)) if budget is None else budget
    )


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
async def test_the_requests_budget_overrides_the_operators(
    encoding: Encoding, settings: dict[str, Any], options: dict[str, Any], budget: int
) -> None:
    engine = TurnsEngine(encoding, THINKS.replace(REASONING, "so " * 20) + ANSWER, ANSWER)
    run = await run_of(engine, Settings(**settings), reasoning=options)
    reasoning = "".join(text for kind, text in texts_of(run) if kind == "reasoning")
    assert len(encoding.encode(reasoning)) == budget


@pytest.mark.parametrize("wrong", [-1, 1.5, "5", True])
def test_an_invalid_budget_is_refused(wrong: object) -> None:
    with pytest.raises(ApiError) as raised:
        parse_request({"input": "hi", "reasoning": {"max_tokens": wrong}})
    assert (raised.value.status, raised.value.param) == (400, "reasoning.max_tokens")


class RandomEngine:
    """Samples at random within the grammar; without a budget it would reason for long."""

    def __init__(self, encoding: Encoding, seed: int) -> None:
        self.info = EngineInfo(name="random", context_length=8_192, enforces_grammar=True)
        self._model = RandomModel(seed, closing_tokens(encoding))

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        assert sampling.grammar is not None
        assert sampling.max_tokens is not None
        sampled, stopped = self._model.answer(sampling.grammar, sampling.max_tokens)
        for token in sampled[:-1]:
            yield Step((token,))
        yield Step((sampled[-1],), Finish.STOP if stopped else Finish.LENGTH)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("budget", [0, 1, 3])
async def test_with_a_grammar_the_turn_stays_well_formed(encoding: Encoding, budget: int) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted = {"type": "json_schema", "name": "n", "schema": {**schema, "additionalProperties": False}}
    engine = RandomEngine(encoding, budget)
    service = responses_service(engine)
    for _ in range(20):
        run = await service.start(
            LOCAL, {"input": "hi", "reasoning": {"max_tokens": budget}, "text": {"format": wanted}}
        )
        response = await run.wait()
        assert response["status"] == "completed"
        reasoning = "".join(text for kind, text in texts_of(run) if kind == "reasoning")
        assert not budget <= 0 < len(reasoning)
        assert set(json.loads(response["output"][-1]["content"][0]["text"])) == {"n"}
    assert not service.served.counters.slips


async def test_a_required_call_follows_closed_reasoning_too(encoding: Encoding) -> None:
    service = responses_service(RandomEngine(encoding, 3))
    for _ in range(10):
        body = {"input": "hi", "tools": [TOOL], "tool_choice": "required", "reasoning": {"max_tokens": 2}}
        response = await (await service.start(LOCAL, {**body, "max_output_tokens": 2_000})).wait()
        assert response["status"] == "incomplete" or response["output"][-1]["type"] == "function_call"
