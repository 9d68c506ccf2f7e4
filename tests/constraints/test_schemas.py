"""Schemas that constrain an answer: any answer that stops is valid, and what cannot be enforced is reported.

Of 346 schemas from public test suites, all that are enforceable (names and licences: `public_schemas.json`),
nearly all answers stop, and a cut answer can still become valid. Of schemas that are not strict, what can be
enforced is, and nothing that the client did not write.
"""

import contextlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpt_oss_server.constraints.grammar import JsonBody, TurnShape, schema_json, turn_grammar
from gpt_oss_server.constraints.json_grammar import as_far_as_enforceable, enforceable
from gpt_oss_server.constraints.matcher import CompiledGrammar, Grammars
from gpt_oss_server.constraints.schema_support import SchemaMalformed, SchemaRefused
from gpt_oss_server.constraints.turn_check import json_problem
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.harmony.sampling import RandomModel, body, closing_tokens
from tests.doubles.harmony.schemas import INTEGER, REFUSED, SCHEMAS, TEXT, Schema, array, closed

PUBLIC: dict[str, Any] = json.loads(Path(__file__).with_name("public_schemas.json").read_text())["schemas"]
SHARES = 8  # tests that can run in parallel
ANSWERS = 3  # of each schema that is written here


def compiled(grammars: Grammars, schema: Schema) -> CompiledGrammar:
    """The constraint of an answer without reasoning."""
    shape = TurnShape(answer=JsonBody(enforceable(grammars, schema)), asides=())
    return grammars.compile(turn_grammar(shape))


def judge(schema: Schema) -> Any:
    """An independent implementation."""
    cls = jsonschema.Draft202012Validator
    return cls(schema, format_checker=cls.FORMAT_CHECKER)


def completed(encoding: Encoding, grammar: CompiledGrammar, tokens: Sequence[int], schema: Any) -> list[int]:
    """The same tokens, continued by a model that closes what can be closed and knows the schema's words."""
    words = [*re.findall(r"[a-z]+", json.dumps(schema)), *"@.-:/0a"]
    hints = sorted({token for word in words for token in encoding.encode(word)})
    for likely in ((), hints):
        model = RandomModel(0, (*closing_tokens(encoding), *likely), share=1)
        answer, ended = model.answer(grammar, len(tokens) + 1_000, begun=tokens)
        if ended:
            return answer
    raise AssertionError("no end is in sight")


def answer_fits(
    encoding: Encoding, grammars: Grammars, schema: Schema, model: RandomModel, most: int = 400
) -> bool:
    """Checks an answer of the model, which is completed if it is cut. Returns whether it was not."""
    grammar = compiled(grammars, schema)
    tokens, ended = model.answer(grammar, most)
    value = json.loads(body(encoding, tokens if ended else completed(encoding, grammar, tokens, schema)))
    assert not list(judge(schema).iter_errors(value)), value
    return ended


def test_there_are_enough_public_schemas_and_each_has_a_meaning() -> None:
    assert len(PUBLIC) >= 300
    assert len({json.dumps(schema, sort_keys=True) for schema in PUBLIC.values()}) == len(PUBLIC)


@pytest.mark.parametrize("share", range(SHARES))
def test_every_answer_that_stops_is_valid_and_nearly_all_stop(
    encoding: Encoding, grammars: Grammars, share: int
) -> None:
    model = RandomModel(share, closing_tokens(encoding))
    schemas = [*PUBLIC.values(), *list(SCHEMAS.values()) * ANSWERS][share::SHARES]
    stopped = [answer_fits(encoding, grammars, schema, model) for schema in schemas]
    assert sum(stopped) >= 0.9 * len(schemas)


@pytest.mark.parametrize("most", [4, 7, 12])
def test_an_answer_cut_anywhere_can_still_become_valid(
    encoding: Encoding, grammars: Grammars, most: int
) -> None:
    model = RandomModel(most, closing_tokens(encoding))
    for schema in list(PUBLIC.values())[most::12]:
        answer_fits(encoding, grammars, schema, model, most)


@pytest.mark.parametrize(("what", "schema", "at"), REFUSED, ids=[f"{what} {at}" for what, _, at in REFUSED])
def test_an_unenforceable_keyword_is_named_with_its_place(
    grammars: Grammars, what: str, schema: Schema, at: str
) -> None:
    with pytest.raises(SchemaRefused) as refused:
        enforceable(grammars, schema)
    assert what in str(refused.value)
    assert refused.value.at == at


def nested(depth: int, inner: Schema = TEXT) -> Schema:
    for _ in range(depth):
        inner = closed(a=inner)
    return inner


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
    with contextlib.suppress(SchemaRefused):
        compiled(grammars, schema).start().mask()
    assert time.thread_time() - before < 2


AB = {"patternProperties": {"^a": INTEGER}, "additionalProperties": False}
CHECKED: list[tuple[Schema, Any, bool]] = [
    (INTEGER, 1.0, True),
    (INTEGER, True, False),
    ({"const": 1}, 1.0, True),
    ({"enum": [[1, {"a": False}]]}, [1, {"a": 0}], False),
    (closed(a=INTEGER, b=TEXT), {"b": "x", "a": 1}, True),
    ({"$defs": {"n": closed(a=INTEGER, b=TEXT)}, **array({"$ref": "#/$defs/n"})}, [{"b": "x", "a": 1}], True),
    (closed(a=INTEGER), {"a": 1, "b": 2}, False),
    (closed(a=INTEGER), {}, False),
    ({"type": "array", "prefixItems": [TEXT], "items": INTEGER}, ["a", "b"], False),
    ({"type": "string", "pattern": "^(a|aa)+$"}, "a" * 2_000 + "b", False),
    ({"type": "string", "pattern": "b"}, 'a"b"\n', True),
    ({"type": "string", "minLength": 2}, "🧠", False),
    (AB, {"ab": 1}, True),
    (AB, {"b": 1}, False),
]


@pytest.mark.parametrize(("schema", "value", "fits"), CHECKED, ids=lambda value: str(value)[:40])
def test_a_value_is_checked_as_another_library_checks_it(
    grammars: Grammars, schema: Schema, value: Any, fits: bool
) -> None:
    assert (json_problem(grammars, enforceable(grammars, schema), value) is None) == fits
    if "(a|aa)" not in str(schema):  # the other library cannot check it
        assert judge(schema).is_valid(value) == fits


LOOK: Schema = {"type": "string", "pattern": "^(?!a).*$"}
N = INTEGER
# A schema, values that fit it, and values that must still be refused.
LOOSE: list[tuple[Schema, Any, Any]] = [
    (closed(n=N, mail=LOOK), {"n": 1, "mail": "b"}, {"n": "one", "mail": "b"}),
    (closed(n=N, **{"a.b[0]": LOOK}), {"n": 1, "a.b[0]": "b"}, {"n": "one", "a.b[0]": "b"}),
    (closed(n=N, tags={"type": "array", "uniqueItems": True}), {"n": 1, "tags": []}, {"n": 1, "tags": 2}),
    (closed(n=N, xy={"type": "array", "items": [N, LOOK]}), {"n": 1, "xy": [1, "b"]}, {"n": 1, "xy": 2}),
    (closed(n=N, it={"anyOf": [LOOK, N], "nullable": True}), {"n": 1, "it": None}, {"n": 1, "it": []}),
    (closed(n=N, it={"oneOf": [{"type": "string"}, LOOK]}), {"n": 1, "it": "a"}, {"n": 1, "it": 2}),
    ({**closed(n=N), "patternProperties": {"^(?!y)x": N}}, {"n": 1, "xx": 1}, {"n": "one"}),
    ({**closed(n=N), "not": {"required": ["x"]}, "if": {"required": ["n"]}}, {"n": 1}, {"n": "one"}),
    ({**closed(n={"$ref": "#/$defs/M.T"}), "$defs": {"M.T": {**N, "not": {}}}}, {"n": 1}, {"n": ""}),
    ({**closed(n=N), "minProperties": 3, "maxProperties": 2}, {"n": 1}, {"n": "one"}),
    (nested(60, N), json.loads('{"a":' * 60 + "1" + "}" * 60), {"a": 1}),
    (closed(n=N, x={"anyOf": [nested(60, N), N]}), {"n": 1, "x": 1}, {"n": "one", "x": 1}),
    (closed(n=N, x={"enum": ["a" * 6000, "b"]}), {"n": 1, "x": "b"}, {"n": "one", "x": "b"}),
    (closed(n=N, x={"type": "object", "properties": {"y" * 6000: N}, "additionalProperties": False}),
     {"n": 1, "x": {"y" * 6000: 1}}, {"n": 1, "x": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "fits", "breaks"), LOOSE)
def test_what_fits_the_schema_fits_its_loose_form(
    grammars: Grammars, schema: Schema, fits: Any, breaks: Any
) -> None:
    loose = as_far_as_enforceable(grammars, schema)
    grammars.compile(f"start: %json {schema_json(loose)}\n")
    jsonschema.Draft202012Validator(loose).validate(fits)
    assert json_problem(grammars, loose, fits) is None
    assert json_problem(grammars, loose, breaks) is not None


INVALID = ({"type": "objekt"}, {"properties": []}, {"anyOf": []}, {"minLength": -1})


@pytest.mark.parametrize("schema", [*INVALID, closed(n={"$ref": "#/$defs/missing"})])
def test_an_invalid_schema_is_reported_nevertheless(grammars: Grammars, schema: Schema) -> None:
    with pytest.raises(SchemaMalformed):
        as_far_as_enforceable(grammars, schema)


OPTIONAL = {f"name_{n}": {"type": ["string", "null"]} for n in range(400)}


def test_as_many_optional_properties_as_are_taken_can_be_followed(
    encoding: Encoding, grammars: Grammars
) -> None:
    state = compiled(grammars, {"type": "object", "properties": OPTIONAL}).start()
    text = '{"name_0":"a b","name_399": null, "other":[{}]}'
    for token in encoding.encode_special(f"<|channel|>final<|message|>{text}<|return|>"):
        assert state.mask()
        state.accept(token)
    assert state.is_accepting()


def test_more_optional_properties_are_refused_by_name(grammars: Grammars) -> None:
    more = {**OPTIONAL, "one_more": {}}
    with pytest.raises(SchemaRefused, match="at most 400 properties of an object can be optional") as refused:
        enforceable(grammars, {"items": {"properties": more, "additionalProperties": False}})
    assert refused.value.at == "items.properties"
    assert enforceable(grammars, {"properties": more, "required": ["one_more"]})
    assert as_far_as_enforceable(grammars, {"properties": more, "additionalProperties": False}) == {}
