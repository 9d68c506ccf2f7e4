"""Answers that the request begins: the model writes the rest of one final message, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpt_oss_server.errors import ApiError, InvalidOutput
from gpt_oss_server.harmony.encoding import END, Encoding, load_encoding
from inference.grammar import GrammarState
from tests.doubles.apis.chat_asking import HI, TOOL, completion_of, message_of, replaying
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.harmony.sampling import RandomEngine, allowed

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
FORMAT: dict[str, Any] = {"response_format": FORM}
TWICE = " a server.<|end|><|start|>assistant<|channel|>final<|message|>I am a server.<|return|>"


def continuing(content: str, **more: Any) -> dict[str, Any]:
    """The same start, in the other way of stating it."""
    last = {"role": "assistant", "content": content, **more}
    return {"messages": [*HI["messages"], last], "continue_final_message": True}


BOTH = pytest.mark.parametrize(
    "body", [{"response_prefix": "I am"}, continuing("I am")], ids=["prefix", "continued"]
)


def enforcing(text: str) -> ReplayEngine:
    engine = replaying(text)
    engine.info = replace(engine.info, enforces_grammar=True)
    return engine


def may(state: GrammarState, marks: str) -> list[bool]:
    mask = allowed(state.mask())
    return [bool(mask[token]) for token in load_encoding().encode_special(marks)]


@BOTH
async def test_the_grammar_allows_the_rest_of_one_message(body: dict[str, Any], encoding: Encoding) -> None:
    engine = enforcing(" a server.<|return|>")
    completion = await completion_of(engine, **body)
    assert message_of(completion)["content"] == " a server."
    grammar = engine.samplings[0].grammar
    assert grammar is not None
    for text in ("", " a server."):
        state = grammar.start()
        for token in encoding.encode(text):
            state.accept(token)
        assert may(state, "<|return|><|end|><|call|><|start|><|channel|><|message|>") == [True] + [False] * 5


@BOTH
async def test_without_a_grammar_the_end_of_the_message_ends_the_turn(body: dict[str, Any]) -> None:
    engine = replaying(TWICE)
    await completion_of(engine, **body)
    assert END in engine.samplings[0].stop_token_ids
    await completion_of(engine)
    assert END not in engine.samplings[1].stop_token_ids


async def test_reasoning_that_is_continued_is_followed_by_an_answer(encoding: Encoding) -> None:
    rest = " indeed.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    engine = enforcing(rest)
    body = continuing("", reasoning="It is so,")
    completion = await completion_of(engine, **body)
    assert END not in engine.samplings[0].stop_token_ids
    assert message_of(completion)["content"] == "Yes."
    grammar = engine.samplings[0].grammar
    assert grammar is not None
    state = grammar.start()
    for token in encoding.encode_special(rest):
        assert allowed(state.mask())[token]
        state.accept(token)


@pytest.mark.parametrize(
    "start", ["{", '{"na', '{"name": "Jo', '{"name": "Jo", "age": 4', '{"name": "Jo", "age": 4}']
)
async def test_a_prefix_and_a_format_bind_the_answer_together(start: str, encoding: Encoding) -> None:
    for seed in range(3):
        completion = await completion_of(RandomEngine(encoding, seed), response_prefix=start, **FORMAT)
        answer = json.loads(start + message_of(completion)["content"])
        assert list(answer) == ["name", "age"]
        assert completion["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("start", ["Sure: ", '{"name": 5', '{"age"'])
async def test_a_prefix_that_does_not_fit_the_format_is_refused(start: str, encoding: Encoding) -> None:
    for body in ({"response_prefix": start}, continuing(start)):
        with pytest.raises(ApiError, match="does not fit the form") as refused:
            await completion_of(RandomEngine(encoding), **body, **FORMAT)
        assert (refused.value.status, refused.value.param) == (400, list(body)[-1])


async def test_without_a_grammar_prefix_and_rest_are_checked_together() -> None:
    good, bad = replaying('"Jo", "age": 4}<|return|>'), replaying('"Jo"}<|return|>')
    assert message_of(await completion_of(good, response_prefix='{"name": ', **FORMAT))["content"]
    with pytest.raises(InvalidOutput):
        await completion_of(bad, response_prefix='{"name": ', **FORMAT)


async def test_a_prefix_may_come_with_strict_tools(encoding: Encoding) -> None:
    strict = [{"type": "function", "function": {**TOOL["function"], "parameters": SCHEMA, "strict": True}}]
    completion = await completion_of(RandomEngine(encoding, 2), tools=strict, response_prefix="I am")
    assert "tool_calls" not in message_of(completion)
