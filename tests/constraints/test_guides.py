"""Guides for tools that are not strict: names and types from their schemas, and no request refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from gpt_oss_server.constraints.binding import bind
from gpt_oss_server.constraints.grammar import ANY_OBJECT, schema_json
from gpt_oss_server.constraints.guide import Guides
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.constraints.wanted import ClientCall, Schema, Wanted
from gpt_oss_server.harmony.encoding import Encoding
from inference.grammar import Grammar
from tests.doubles.harmony.sampling import RandomModel, closing_tokens, fitting
from tests.doubles.harmony.schemas import INTEGER, TEXT, closed, opened
from tests.doubles.stored import known

RECORDED = Path(__file__).parents[1] / "clients" / "requests"
N, T = INTEGER, TEXT


def guided(encoding: Encoding, guides: dict[str, Any], **more: Any) -> Grammar:
    """The grammar of a turn that may call tools with these schemas."""
    wanted = Wanted(calls=[ClientCall(recipient) for recipient in guides], guides=guides, **more)
    return known(bind(wanted, encoding, enforces=True, guides=True).grammar)


TODO = {**opened(step=T, status={"enum": ["open", "done"]}), "required": ["step", "status"]}
# A schema, arguments that it allows, and arguments that it does not.
CASES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    (opened(city=T), ['{"city": "Oslo"}', "{}"], ['{"town": "Oslo"}', '{"city": 5}', "[]"]),
    ({**opened(city=T), "required": ["city"]}, ['{"city": ""}'], ["{}"]),
    ({**opened(city=T), "additionalProperties": True}, ['{"town": 1}'], ['{"city": 1}']),
    ({**opened(city=T), "additionalProperties": N}, ['{"town": 1}'], ['{"town": "1"}']),
    ({**opened(city=T), "patternProperties": {"^x": N}}, ['{"town": "1"}'], ['{"city": 1}']),
    ({"properties": {"city": T}}, ['{"city": "a"}'], ['{"town": "a"}']),
    ({"type": "object"}, ['{"town": "a"}', "{}"], ["5"]),
    ({}, ['{"town": "a"}'], ["5"]),
    ({**opened(plan={"type": "array", "items": TODO}), "required": ["plan"]},
     ['{"plan": [{"step": "a", "status": "open"}]}', '{"plan": []}'],
     ['{"plan": [{"step": "a"}]}', '{"plan": [{"step": "a", "status": "late"}]}', "{}"]),
    ({**opened(at={"$ref": "#/$defs/At"}), "$defs": {"At": opened(x=N)}},
     ['{"at": {"x": 1}}'], ['{"at": {"y": 1}}']),
    (opened(it={"anyOf": [opened(x=N), {"type": "null"}]}),
     ['{"it": null}', '{"it": {"x": 1}}'], ['{"it": {"y": 1}}']),
    (opened(it={"oneOf": [T, {"type": "string", "pattern": "a"}]}), ['{"it": "a"}'], ['{"it": 1}']),
    # Parts of one object: none of them lists all names.
    ({"allOf": [opened(x=N), opened(y=N)]}, ['{"x": 1, "y": 2}'], ['{"x": "1"}']),
    ({**opened(x=N), "anyOf": [opened(y=N), opened(z=N)]}, ['{"x": 1, "y": 2}'], ['{"x": "1"}']),
    ({**opened(x=N), "if": {"required": ["x"]}, "then": {"required": ["y"]}}, ['{"x": 1}'], ['{"x": "1"}']),
    # The prompt declares these, and they do not guide.
    (opened(code={"type": "string", "pattern": "^(?=a)a+$", "maxLength": 9}, n={**N, "minimum": 5}),
     ['{"code": "zzzzzzzzzzzzz", "n": 1}'], ['{"code": 1}']),
    (opened(xy={"type": "array", "items": [N, T], "minItems": 2}),
     ['{"xy": []}', '{"xy": ["a"]}'], ['{"xy": 1}']),
    (opened(tags={"type": "array", "items": T, "uniqueItems": True}),
     ['{"tags": ["a", "a"]}'], ['{"tags": [1]}']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "good", "bad"), CASES, ids=[str(case[0])[:40] for case in CASES])
def test_a_guide_allows_the_schemas_names_and_types(
    grammars: Grammars, schema: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    guide = schema_json(Guides(grammars).of(schema).schema)
    grammar = grammars.compile(f"start: %json {guide}\n")
    for text in (*good, *bad):
        assert grammars.matches(grammar, text) == (text in good), text


def test_a_schema_of_no_use_allows_any_object(grammars: Grammars) -> None:
    empty = closed(a=False)
    malformed = ({"type": "hammer"}, {"type": "object", "properties": 5}, {"$ref": "http://x"})
    for schema in (T, empty, opened(a={"enum": ["x" * 16_000]}), *malformed):
        assert Guides(grammars).of(schema) == ANY_OBJECT, schema


def test_a_guide_never_refuses_a_request(
    encoding: Encoding, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All schemas together may be too large for one grammar: then none guides."""
    import llguidance

    wide = opened(**{f"name{at}": T for at in range(40)})
    guides = {f"functions.f{at}": {**wide, "title": str(at)} for at in range(40)}
    call = '<|channel|>commentary to=functions.f1 <|constrain|>json<|message|>{"city": 1}<|call|>'
    city = encoding.encode_special(call)
    assert fitting(guided(encoding, guides), city) < len(city)
    monkeypatch.setattr(grammars, "_limits", llguidance.LLParserLimits(max_grammar_size=5_000))
    guides["functions.other"] = wide  # another grammar
    assert fitting(guided(encoding, guides), city) == len(city)


def test_the_schemas_that_guide_one_request_are_limited(grammars: Grammars) -> None:
    guides, long = Guides(grammars), {**TODO, "description": "x" * 15_000}
    bodies = [guides.of(TODO) for _ in range(300)]
    assert (bodies[255], bodies[256]) == (Guides(grammars).of(TODO), ANY_OBJECT)
    guides = Guides(grammars)
    assert [guides.of(long) == ANY_OBJECT for _ in range(15)] == [False] * 13 + [True] * 2


def test_without_enforcement_nothing_is_checked(encoding: Encoding) -> None:
    wanted = Wanted(calls=[ClientCall("functions.f")], guides={"functions.f": TODO})
    assert bind(wanted, encoding, enforces=False, guides=True).check is None


def recorded() -> list[dict[str, Any]]:
    """The schemas of the functions that real clients send."""
    schemas: dict[str, dict[str, Any]] = {}

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            schema = value.get("parameters")
            if isinstance(schema, dict) and "name" in value:
                schemas[json.dumps(schema, sort_keys=True)] = schema
            value = list(value.values())
        for inner in value if isinstance(value, list) else ():
            collect(inner)

    for path in sorted(RECORDED.glob("*.json")):
        collect(json.loads(path.read_text(encoding="utf-8")))
    return list(schemas.values())


def test_calls_of_real_clients_tools_fit_their_schemas(encoding: Encoding) -> None:
    schemas = recorded()
    assert len(schemas) > 15
    for seed, schema in enumerate(schemas):
        text = arguments(encoding, guided(encoding, {"functions.f": schema}, must_call=True), seed)
        if text is not None:
            assert set(json.loads(text)) <= set(schema["properties"]), (schema, text)
            assert set(json.loads(text)) >= set(schema.get("required", ())), (schema, text)


def arguments(encoding: Encoding, grammar: Grammar, seed: int) -> str | None:
    """The arguments of a random call, or None if it was cut off."""
    begun = encoding.encode_special("<|channel|>commentary to=functions.f <|constrain|>json<|message|>")
    tokens, stopped = RandomModel(seed, closing_tokens(encoding)).answer(grammar, 600, begun=begun)
    return encoding.decode(tokens[len(begun) : -1]) if stopped else None


STRICT: list[dict[str, Any]] = [
    {**opened(plan={"type": "array", "items": TODO, "minItems": 1}), "required": ["plan"]},
    {**opened(status=T), "required": ["status", "reason"]},  # `reason` is not among the properties
    {**opened(at={"$ref": "#/$defs/At"}), "required": ["at"],
     "$defs": {"At": {**opened(x=N), "required": ["x"]}}},
    {**opened(it={"anyOf": [TODO, {**opened(x=N), "required": ["x"]}]}), "required": ["it"]},
    {"allOf": [{**opened(x=N), "required": ["x"]}, {**opened(y=T), "required": ["y"]}]},
]  # fmt: skip


@pytest.mark.parametrize("schema", STRICT, ids=[str(each)[:40] for each in STRICT])
@pytest.mark.parametrize("strict", [True, False])
def test_required_properties_are_always_there(
    encoding: Encoding, grammars: Grammars, schema: dict[str, Any], strict: bool
) -> None:
    grammar = guided(encoding, {"functions.f": schema})
    if strict:
        calls = [ClientCall("functions.f", Schema(schema, "tools[0].parameters"))]
        grammar = known(bind(Wanted(calls), encoding, enforces=True).grammar)
    answers = [arguments(encoding, grammar, seed) for seed in range(20)]
    assert any(answers)
    for text in filter(None, answers):
        problems = list(Draft202012Validator(schema).iter_errors(json.loads(text)))
        assert not problems or not strict, text
        assert all(problem.validator != "required" for problem in problems), text


def test_a_guide_is_read_once(grammars: Grammars) -> None:
    assert Guides(grammars).of(TODO) is Guides(grammars).of(dict(TODO))
