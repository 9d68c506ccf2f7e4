"""The request restated in the thought before a call, with the call's values marked."""

from __future__ import annotations

import json
import re
from random import Random

import pytest

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.copies import copies_of
from recipe.functions.restating import CLOSES, restated
from recipe.functions.tool_stock import Field, Request
from recipe.skills.calls import arguments_of, call_talk
from recipe.text.talk import CALL, CONSTRAIN, MESSAGE, Talk, Turn, Value, tokens_of
from recipe.text.vocabulary import encoding
from recipe.text.words import Words
from recipe.training.marks import requests_in

_MARK = re.compile(r" \[\w+:")


def request(text: str, **values: str) -> Request:
    """`text` is a request for a function with these parameters and their values in the text."""
    fields = tuple((Field(name, "word"), Value(value)) for name, value in values.items())
    spans = tuple((text.index(value), text.index(value) + len(value)) for value in values.values())
    return Request(FunctionTool("f", None, {}), text, fields, spans, frozenset())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            request("Is it cold in New Oslo?", city="New Oslo"),
            "Is it cold in [city: New Oslo]?",
        ),
        (request("Wait 10 minutes", minutes="10"), "Wait [minutes: 10] minutes"),
        (request('Play "Blue Sky" now', title="Blue Sky"), 'Play [title: "Blue Sky]" now'),
        (request("From Rome to Oslo", to="Oslo", origin="Rome"), "From [origin: Rome] to [to: Oslo]"),
        (request("Oslo weather", city="Oslo"), " [city:Oslo] weather"),
        (request("How is the weather?"), "How is the weather?"),
    ],
)
def test_values_are_marked_in_the_request(given: Request, expected: str) -> None:
    assert encoding().decode(restated(given)) == f":\n{expected}"


def test_the_call_has_its_arguments_in_the_order_of_the_declaration() -> None:
    given = request("From Rome to Oslo", to_city="Oslo", origin="Rome")
    assert encoding().decode(arguments_of(given)) == '{"to_city": "Oslo", "origin": "Rome"}'


def thoughts_and_calls(held_out: bool) -> list[tuple[str, str, dict[str, object]]]:
    """The user's last message, its restatement in the thought, and the call's arguments."""
    found = []
    for seed in range(60):
        rng = Random(f"restating/{seed}")
        talk: Talk = call_talk(rng, Words(rng, held_out), held_out, most=3)
        turns = [turn for turn in talk.turns if CONSTRAIN in talk.tokens[turn.start : turn.end]]
        found += [_parts(talk, turn) for turn in turns]
    return found


def _parts(talk: Talk, turn: Turn) -> tuple[str, str, dict[str, object]]:
    decode, tokens = encoding().decode, talk.tokens
    text = decode(tokens[: turn.start]).rpartition("<|start|>user<|message|>")[2].partition("<|end|>")[0]
    thought = decode(tokens[turn.start : turn.end]).partition("<|end|>")[0].partition(":\n")[2]
    body = tokens.index(MESSAGE, tokens.index(CONSTRAIN, turn.start)) + 1
    return text, thought, json.loads(decode(tokens[body : turn.end - 1]))


@pytest.mark.parametrize("held_out", [False, True])
def test_without_its_marks_the_thought_equals_the_request(held_out: bool) -> None:
    pairs = [(text, thought) for text, thought, _ in thoughts_and_calls(held_out) if thought]
    assert len(pairs) > 30
    for text, thought in pairs:
        assert _MARK.sub("", thought).replace("]", "") == text.replace("]", "")


@pytest.mark.parametrize("held_out", [False, True])
def test_the_marks_are_the_arguments_of_the_call(held_out: bool) -> None:
    copied = 0
    for _, thought, arguments in thoughts_and_calls(held_out):
        marked = re.findall(r" \[(\w+): ?[\"']?(.*?)\]", thought)
        assert {name for name, _ in marked} == arguments.keys()
        copied += sum(text == str(arguments[name]) for name, text in marked)
    assert copied > 30


@pytest.mark.parametrize("held_out", [False, True])
def test_values_and_options_are_copied_by_one_rule(held_out: bool) -> None:
    """An option has the tokens of the request, not those of its declaration, which cuts words elsewhere."""
    (closes,) = tokens_of(CLOSES)
    options = 0
    for seed in range(150):
        rng = Random(f"options/{seed}")
        talk = call_talk(rng, Words(rng, held_out), held_out, most=2)
        declared = {
            name for tool in talk.tools for name, schema in _properties(tool).items() if "enum" in schema
        }
        for _, found in copies_of(talk, requests_in(talk.tokens)):
            for copy in found:
                name = encoding().decode(list(copy.name))
                end = talk.tokens.index(closes, copy.restated)
                restated_value = encoding().decode(talk.tokens[copy.restated : end])
                call = encoding().decode(talk.tokens[copy.naming : talk.tokens.index(CALL, copy.naming)])
                if f'"{name}": "{restated_value.strip()}"' in call:
                    assert copy.same
                    options += name in declared
    assert options > 5


def _properties(tool: FunctionTool) -> dict[str, dict[str, object]]:
    properties: dict[str, dict[str, object]] = (tool.parameters or {}).get("properties", {})
    return properties
