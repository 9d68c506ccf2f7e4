"""Schemas that constrain an answer: any answer that stops is valid; what cannot be enforced is reported."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from gpt_oss_server.constraints.grammar import JsonBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.json_check import JsonCheck
from gpt_oss_server.constraints.json_grammar import enforceable
from gpt_oss_server.constraints.matcher import CompiledGrammar, Grammars, grammars_of
from gpt_oss_server.constraints.schema_support import SchemaRefused
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.harmony.judging import body, judge
from tests.doubles.harmony.sampling import RandomModel, allowed, closing_tokens
from tests.doubles.harmony.schemas import INTEGER, REFUSED, SCHEMAS, TEXT, Schema, closed

ANSWERS = 3  # of each schema


@pytest.fixture(scope="module")
def grammars(encoding: Encoding) -> Grammars:
    return grammars_of(encoding)


def compiled(grammars: Grammars, schema: Schema) -> CompiledGrammar:
    shape = TurnShape(answer=JsonBody(enforceable(grammars, schema)), asides=())
    return grammars.compile(turn_grammar(shape))


def test_every_answer_that_stops_is_valid_and_nearly_all_stop(encoding: Encoding, grammars: Grammars) -> None:
    model = RandomModel(11, closing_tokens(encoding))
    stopped = 0
    for name, schema in SCHEMAS.items():
        grammar, validator = compiled(grammars, schema), judge(schema)
        check = JsonCheck(enforceable(grammars, schema), grammars)
        for _ in range(ANSWERS):
            tokens, ended = model.answer(grammar)
            if not ended:
                assert_can_continue(grammar, tokens)
                continue
            stopped += 1
            value = json.loads(body(encoding, tokens))
            assert not list(validator.iter_errors(value)), (name, value)
            assert check.problem(value) is None, (name, value)
    assert stopped >= 0.9 * ANSWERS * len(SCHEMAS)


def assert_can_continue(grammar: CompiledGrammar, tokens: list[int]) -> None:
    state = grammar.start()
    for token in tokens:
        state.accept(token)
    assert allowed(state.mask()).any()


@pytest.mark.parametrize(("what", "schema", "at"), REFUSED, ids=[f"{what} {at}" for what, _, at in REFUSED])
def test_an_unenforceable_keyword_is_named_with_its_place(
    grammars: Grammars, what: str, schema: Schema, at: str
) -> None:
    with pytest.raises(SchemaRefused) as refused:
        enforceable(grammars, schema)
    assert what in str(refused.value)
    assert refused.value.at == at


def nested(depth: int) -> Schema:
    schema: Schema = TEXT
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def chain(length: int, keyword: str) -> Schema:
    """Each schema refers to the next, or twice to it."""
    links: dict[str, Any] = {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(length)}
    if keyword != "$ref":
        links = {name: {keyword: [link, link]} for name, link in links.items()}
    return {"$defs": {**links, str(length): INTEGER}, "$ref": "#/$defs/0"}


HOSTILE: dict[str, Schema] = {
    "deep": nested(500),
    "wide": closed(**{f"p{n}": TEXT for n in range(3_000)}),
    "too wide": closed(**{f"p{n}": TEXT for n in range(10_000)}),
    "many constants": {"enum": [f"value {n}" for n in range(3_000)]},
    "many cases": {"anyOf": [closed(kind={"const": f"k{n}"}) for n in range(500)]},
    "a large constant": {"const": "x" * 100_000},
    "a large pattern": {"type": "string", "pattern": "(a|b)c" * 50_000},
    "repeated repetition": {"type": "string", "pattern": "^((a{0,1000}){0,1000}){0,1000}$"},
    "ambiguous repetition": {"type": "string", "pattern": "^(a|aa|aaa)+$"},
    "a window": {"type": "string", "pattern": ".*a.{200}b"},
    "many patterns": {"type": "object", "patternProperties": {f"^{n}x.*$": INTEGER for n in range(1_000)}},
    "a large step": {"type": "integer", "multipleOf": 999_983},
    "nested counts": {"type": "array", "minItems": 1000, "items": {"type": "array", "minItems": 1000}},
    "a chain of references": chain(1_000, "$ref"),
    "references that double": chain(25, "anyOf"),
    "conditions that double": chain(25, "allOf"),
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_schema_costs_little(grammars: Grammars, schema: Schema) -> None:
    before = time.thread_time()
    try:
        state = compiled(grammars, schema).start()
        state.mask()
    except SchemaRefused:
        pass
    assert time.thread_time() - before < 2


CHECKED: list[tuple[Schema, Any, str | None]] = [
    (INTEGER, 1.0, None),
    (INTEGER, True, "type integer"),
    (INTEGER, 1.5, "type integer"),
    ({"const": 1}, 1.0, None),
    ({"const": 1}, True, "is not 1"),
    ({"enum": [[1, {"a": False}]]}, [1, {"a": 0}], "none of"),
    ({"type": "number", "multipleOf": 0.1}, 0.3, None),
    ({"type": "number", "multipleOf": 0.1}, 0.35, "multipleOf"),
    (closed(a=INTEGER), {"a": 1, "b": 2}, "nothing is allowed at b"),
    (closed(a=INTEGER), {}, "'a' is missing"),
    (closed(a=closed(b=INTEGER)), {"a": {"b": "x"}}, "at a.b"),
    ({"type": "array", "items": INTEGER, "maxItems": 1}, [1, 2], "more than 1 items"),
    ({"type": "array", "prefixItems": [TEXT], "items": INTEGER}, ["a", "b"], "[1]"),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, None, "0 of the cases"),
    ({"anyOf": [TEXT, INTEGER]}, None, "none of the cases"),
    ({"type": "string", "pattern": "^(a|aa)+$"}, "a" * 2_000 + "b", "pattern"),
    ({"type": "string", "pattern": "b"}, 'a"b"\n', None),
    ({"type": "string", "format": "date"}, "2024-02-30", "format"),
    ({"type": "string", "minLength": 2}, "🧠", "shorter"),
    ({"patternProperties": {"^a": INTEGER}, "additionalProperties": False}, {"ab": 1}, None),
    ({"patternProperties": {"^a": INTEGER}, "additionalProperties": False}, {"b": 1}, "nothing"),
    ({"$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, "1", "type integer"),
    ({"maximum": 3, "exclusiveMinimum": 3}, 3, "exclusiveMinimum"),
]


@pytest.mark.parametrize(("schema", "value", "problem"), CHECKED, ids=lambda value: str(value)[:40])
def test_a_value_is_checked_as_another_library_checks_it(
    grammars: Grammars, schema: Schema, value: Any, problem: str | None
) -> None:
    found = JsonCheck(enforceable(grammars, schema), grammars).problem(value)
    assert (found is None) == (problem is None)
    assert problem is None or problem in str(found)
    if schema.get("multipleOf") != 0.1 and "(a|aa)" not in str(
        schema
    ):  # which the other library cannot check
        assert judge(schema).is_valid(value) == (problem is None)


def test_a_value_that_is_too_deep_to_check_is_reported(grammars: Grammars) -> None:
    schema = {"anyOf": [{"type": "null"}, {"type": "array", "items": {"$ref": "#"}}]}
    value: Any = None
    for _ in range(200):
        value = [value]
    assert JsonCheck(enforceable(grammars, schema), grammars).problem(value) == (
        "it is too deep or too large to be checked"
    )
