"""Forms that a chat request requires, and answers that it begins: stated, enforced, or checked at the end."""

import json
from typing import Any

import pytest

from gpt_oss_server.errors import ApiError, InvalidOutput
from gpt_oss_server.harmony.encoding import END, Encoding, load_encoding
from inference.grammar import Notation, SpelledGrammar
from tests.doubles.apis.chat_asking import (
    TOOL,
    check_chunks,
    chunks_of,
    completion_of,
    continuing,
    message_of,
    replaying,
)
from tests.doubles.harmony.sampling import RandomEngine, allowed
from tests.doubles.harmony.schemas import INTEGER, TEXT, closed, opened

SCHEMA = {**opened(name=TEXT), "required": ["name"]}
OBJECT: dict[str, Any] = {"response_format": {"type": "json_object"}}
SHAPED: dict[str, Any] = {"response_format": {"type": "json_object", "schema": SCHEMA}}
NAMED_SCHEMA = {"name": "city", "schema": SCHEMA, "strict": True}
FORMAT: dict[str, Any] = {"response_format": {"type": "json_schema", "json_schema": NAMED_SCHEMA}}
GOOD = '<|channel|>final <|constrain|>json<|message|>{"name": "Oslo"}<|return|>'
BAD = '<|channel|>final<|message|>{"name": 5}<|return|>'
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city": 5}<|call|>'
STRICT: dict[str, Any] = {"tools": [{"type": "function", "function": {**TOOL["function"], "strict": True}}]}
NAMED: dict[str, Any] = {"tool_choice": {"type": "function", "function": {"name": "f"}}, "tools": [TOOL]}


@pytest.mark.parametrize("body", [FORMAT, OBJECT, SHAPED], ids=["schema", "object", "object with a schema"])
async def test_a_preamble_is_not_part_of_an_answer_in_a_form(body: dict[str, Any]) -> None:
    assert message_of(await completion_of(replaying(GOOD), **body))["content"] == '{"name": "Oslo"}'
    turn = "<|channel|>commentary<|message|>I will name one.<|end|><|start|>assistant" + GOOD
    whole = await completion_of(replaying(turn), **body)
    assert message_of(whole)["content"] == '{"name": "Oslo"}'
    assert message_of(whole)["reasoning"].endswith("I will name one.")
    assert check_chunks(await chunks_of(replaying(turn), **body))["choices"] == whole["choices"]


async def test_an_answer_in_a_form_has_no_preamble_if_there_are_no_tools() -> None:
    engine = replaying(GOOD, enforces_grammar=True)
    for body in (FORMAT, {**FORMAT, "tools": [TOOL]}, {}):
        await completion_of(engine, **body)
    preamble = load_encoding().encode_special("<|channel|>commentary<|message|>")
    for sampling, may in zip(engine.samplings, (False, True, True), strict=True):
        state = sampling.grammar.start()
        state.accept(preamble[0])
        assert allowed(state.mask())[preamble[1]] == may


WRONG = {
    "answer": (BAD, FORMAT),
    "object": (BAD, SHAPED),
    "arguments": (CALL, STRICT),
    "no call": (GOOD, {"tool_choice": "required", "tools": [TOOL]}),
    "no named call": (GOOD, NAMED),
}


@pytest.mark.parametrize("name", WRONG)
async def test_without_a_grammar_a_wrong_form_is_an_error_after_the_text(name: str) -> None:
    text, body = WRONG[name]
    *shown, last = await chunks_of(replaying(text), **body)
    assert last["error"]["code"] == "invalid_output"
    assert shown[-1]["choices"][0]["delta"], "the stream shows the text"
    with pytest.raises(InvalidOutput):
        await completion_of(replaying(text), **body)


async def test_a_truncated_answer_is_not_checked() -> None:
    for body in ({"max_tokens": 5}, {"stop": "name"}):
        completion = check_chunks(await chunks_of(replaying(GOOD), **FORMAT, **body))
        assert completion["choices"][0]["finish_reason"] in ("length", "stop")


async def test_allowed_tools_in_the_nested_form_of_chat() -> None:
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}
    body = {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}, "tools": [TOOL]}
    completion = await completion_of(replaying(CALL), **body)
    assert completion["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_engine_that_enforces_grammars_gets_one_for_every_choice() -> None:
    engine = replaying(GOOD, enforces_grammar=True)
    await completion_of(engine, n=2, **FORMAT)
    await completion_of(engine)
    assert [sampling.grammar is not None for sampling in engine.samplings] == [True] * 3
    assert engine.samplings[0].grammar is engine.samplings[1].grammar


async def test_an_engine_that_takes_grammars_as_text_gets_one_and_is_checked() -> None:
    good, bad = (replaying(text, notation=Notation.GBNF) for text in (GOOD, BAD))
    await completion_of(good, **FORMAT)
    await completion_of(good)
    formed, free = (sampling.grammar for sampling in good.samplings)
    assert isinstance(free, SpelledGrammar)
    assert '"\\"name\\""' in (formed.spelling().rest(Notation.GBNF) or "")
    with pytest.raises(InvalidOutput):
        await completion_of(bad, **FORMAT)


@pytest.mark.parametrize(
    ("fields", "good", "bad"),
    [
        ({"guided_regex": "[0-9]+"}, "42", "forty-two"),
        ({"guided_choice": ["yes", "no"]}, "no", "perhaps"),
        ({"grammar": 'root ::= "a" "b"?'}, "ab", "abb"),
        ({"json_schema": SCHEMA}, '{"name": "Oslo"}', "Oslo"),
        ({"guided_json": '{"enum": ["\\ud800", 1]}'}, "1", "2"),  # half a character, as JSON can spell it
    ],
    ids=str,
)
async def test_without_grammars_each_form_is_checked(fields: dict[str, Any], good: str, bad: str) -> None:
    answer = "<|channel|>final<|message|>{}<|return|>"
    fits = await completion_of(replaying(answer.format(good)), **fields)
    assert message_of(fits)["content"] == good
    with pytest.raises(InvalidOutput, match="does not f"):
        await completion_of(replaying(answer.format(bad)), **fields)


PERSON = closed(name=TEXT, age=INTEGER)
PERSON_FORM = {"type": "json_schema", "json_schema": {**NAMED_SCHEMA, "schema": PERSON}}
PERSONS: dict[str, Any] = {"response_format": PERSON_FORM}
TWICE = " a server.<|end|><|start|>assistant<|channel|>final<|message|>I am a server.<|return|>"


async def test_the_grammar_allows_the_rest_of_one_message(encoding: Encoding) -> None:
    engine = replaying(" a server.<|return|>", enforces_grammar=True)
    completion = await completion_of(engine, **continuing("I am"))
    assert message_of(completion)["content"] == " a server."
    marks = encoding.encode_special("<|return|><|end|><|call|><|start|><|channel|><|message|>")
    for text in ("", " a server."):
        state = engine.samplings[0].grammar.start()
        for token in encoding.encode(text):
            state.accept(token)
        mask = allowed(state.mask())
        assert [bool(mask[token]) for token in marks] == [True] + [False] * 5


async def test_without_a_grammar_the_end_of_the_message_ends_the_turn() -> None:
    engine = replaying(TWICE)
    await completion_of(engine, **continuing("I am"))
    assert END in engine.samplings[0].stop_token_ids
    await completion_of(engine)
    assert END not in engine.samplings[1].stop_token_ids


async def test_reasoning_that_is_continued_is_followed_by_an_answer(encoding: Encoding) -> None:
    rest = " indeed.<|end|><|start|>assistant<|channel|>final<|message|>Yes.<|return|>"
    engine = replaying(rest, enforces_grammar=True)
    completion = await completion_of(engine, **continuing("", reasoning="It is so,"))
    assert END not in engine.samplings[0].stop_token_ids
    assert message_of(completion)["content"] == "Yes."
    state = engine.samplings[0].grammar.start()
    for token in encoding.encode_special(rest):
        assert allowed(state.mask())[token]
        state.accept(token)


@pytest.mark.parametrize(
    "start", ["{", '{"na', '{"name": "Jo', '{"name": "Jo", "age": 4', '{"name": "Jo", "age": 4}']
)
async def test_a_prefix_and_a_format_bind_the_answer_together(start: str, encoding: Encoding) -> None:
    for seed in range(3):
        completion = await completion_of(RandomEngine(encoding, seed), **continuing(start), **PERSONS)
        answer = json.loads(start + message_of(completion)["content"])
        assert list(answer) == ["name", "age"]
        assert completion["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("start", ["Sure: ", '{"name": 5', '{"age"'])
async def test_a_prefix_that_does_not_fit_the_format_is_refused(start: str, encoding: Encoding) -> None:
    with pytest.raises(ApiError, match="does not fit the form") as refused:
        await completion_of(RandomEngine(encoding), **continuing(start), **PERSONS)
    assert (refused.value.status, refused.value.param) == (400, "continue_final_message")


async def test_without_a_grammar_prefix_and_rest_are_checked_together() -> None:
    good, bad = replaying('"Jo", "age": 4}<|return|>'), replaying('"Jo"}<|return|>')
    assert message_of(await completion_of(good, **continuing('{"name": '), **PERSONS))["content"]
    with pytest.raises(InvalidOutput):
        await completion_of(bad, **continuing('{"name": '), **PERSONS)


async def test_a_prefix_may_come_with_strict_tools(encoding: Encoding) -> None:
    strict = [{"type": "function", "function": {**TOOL["function"], "parameters": PERSON, "strict": True}}]
    completion = await completion_of(RandomEngine(encoding, 2), tools=strict, **continuing("I am"))
    assert "tool_calls" not in message_of(completion)
