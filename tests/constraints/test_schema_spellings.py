"""Schemas as Pydantic, Zod and OpenAPI write them, and the answers that fit."""

import json
from enum import Enum
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from gpt_oss_server.constraints.grammar import schema_json
from gpt_oss_server.constraints.json_grammar import enforceable
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.constraints.schema_support import SchemaRefused
from tests.doubles.harmony.schemas import INTEGER, NULL, NUMBER, TEXT, array, closed, integer, mapping, text

SAFE = 2**53 - 1


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int


class Dog(BaseModel):
    kind: Literal["dog", "puppy"]
    name: str


class Home(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Color(Enum):
    red = "red"
    blue = "blue"


class Paints(BaseModel):
    of: dict[Color, int]


POINT = closed(x=NUMBER)


def refs(*cases: Any) -> dict[str, Any]:
    defs = {f"c{number}": case for number, case in enumerate(cases)}
    return {"$defs": defs, "oneOf": [{"$ref": f"#/$defs/{name}"} for name in defs]}


def tagged(value: str, **more: Any) -> dict[str, Any]:
    return closed(t=text(const=value), **more)


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/{name}"}


def bounded(*, exclusive: bool) -> dict[str, Any]:
    return integer(minimum=0, exclusiveMinimum=exclusive, maximum=3, exclusiveMaximum=exclusive)


PAIR = array([NUMBER, TEXT], additionalItems=False, minItems=2, maxItems=2)
TEXT_AND_MORE = array([TEXT], additionalItems=INTEGER, minItems=1)
# A schema, answers that fit it, and some that do not.
SPELT: dict[str, tuple[dict[str, Any], list[Any], list[Any]]] = {
    "Zod's integer": (integer(minimum=-SAFE, maximum=SAFE), [0, SAFE, -SAFE], [SAFE + 1, -SAFE - 1, 0.5]),
    "Zod's positive integer": (integer(exclusiveMinimum=0, maximum=SAFE), [1, SAFE], [0, SAFE + 1]),
    "Zod's tuple": (PAIR, [[1, "a"]], [[1], ["a", 1], [1, "a", 2]]),
    "a tuple with more": (TEXT_AND_MORE, [["a"], ["a", 1, 2]], [[1], ["a", "b"]]),
    "Zod's record": (mapping(NUMBER, propertyNames=TEXT), [{}, {"a": 1}], [{"a": "b"}]),
    "Zod's record of listed names": (
        mapping(NUMBER, propertyNames=text(enum=["a", "b"]), required=["a"]),
        [{"a": 1}, {"a": 1, "b": 2}],
        [{"b": 2}, {"a": 1, "c": 2}, {"a": "x"}],
    ),
    "Zod's tuple of two alike": (
        closed(a=array([POINT, ref("properties/a/items/0")], minItems=2)),
        [{"a": [{"x": 1}, {"x": 2}]}],
        [{"a": [{"x": 1}, {"y": 2}]}, {"a": [{"x": 1}, 2]}],
    ),
    "a reference to a case of what is nullable": (
        closed(a={"anyOf": [POINT, INTEGER], "nullable": True}, b=ref("properties/a/anyOf/0")),
        [{"a": None, "b": {"x": 1}}, {"a": 1, "b": {"x": 1}}],
        [{"a": None, "b": 1}, {"a": None, "b": None}],
    ),
    "a reference to a case of oneOf": (
        {"$defs": {"p": POINT}, **closed(a={"oneOf": [ref("$defs/p"), NULL]}, b=ref("properties/a/oneOf/1"))},
        [{"a": {"x": 1}, "b": None}],
        [{"a": None, "b": {"x": 1}}],
    ),
    "a reference to anything": (
        {"$defs": {"any": True}, **closed(a=ref("$defs/any"))},
        [{"a": [None]}],
        [{}],
    ),
    "Pydantic's names of an enum": (
        Paints.model_json_schema(),
        [{"of": {}}, {"of": {"red": 1}}, {"of": {"red": 1, "blue": 2}}],
        [{"of": {"green": 1}}, {"of": {"red": "x"}}],
    ),
    "one name": (mapping(INTEGER, propertyNames={"const": "a"}), [{}, {"a": 1}], [{"b": 1}]),
    "OpenAPI's exclusive bounds": (bounded(exclusive=True), [1, 2], [0, 3]),
    "OpenAPI's inclusive bounds": (bounded(exclusive=False), [0, 3], [-1, 4]),
    "nullable": (closed(a=text(nullable=True)), [{"a": None}, {"a": "x"}], [{"a": 1}, {}]),
    "nullable of several": (closed(a={"type": ["string"], "nullable": True}), [{"a": None}], [{"a": 1}]),
    "nullable enum": (closed(a=text(enum=["x"], nullable=True)), [{"a": None}, {"a": "x"}], [{"a": "y"}]),
    "nullable reference": (
        {"$defs": {"n": INTEGER}, **closed(a={**ref("$defs/n"), "nullable": True})},
        [{"a": None}, {"a": 1}],
        [{"a": "x"}],
    ),
    "not nullable": (closed(a=text(nullable=False)), [{"a": "x"}], [{"a": None}]),
    "Pydantic's tagged union": (
        Home.model_json_schema(),
        [{"pet": {"kind": "cat", "lives": 9}}, {"pet": {"kind": "puppy", "name": "Rex"}}],
        [{"pet": {"kind": "cow", "name": "Rex"}}, {"pet": {"kind": "dog"}}],
    ),
    "tagged references": (
        refs(tagged("a", n=INTEGER), tagged("b", s=TEXT)),
        [{"t": "a", "n": 1}, {"t": "b", "s": "x"}],
        [{"t": "a", "s": "x"}, {"t": "c", "n": 1}],
    ),
    "a reference or null": ({"$defs": {"n": INTEGER}, "oneOf": [ref("$defs/n"), NULL]}, [1, None], ["x"]),
    "references in a chain": (
        {"$defs": {"a": ref("$defs/b"), "b": TEXT}, "oneOf": [ref("$defs/a"), INTEGER]},
        ["x", 1],
        [None],
    ),
}


@pytest.mark.parametrize("name", SPELT)
def test_the_grammar_allows_what_fits(grammars: Grammars, name: str) -> None:
    schema, good, bad = SPELT[name]
    clean = enforceable(grammars, schema)
    grammar = grammars.compile(f"start: %json {schema_json(clean)}")
    for value in (*good, *bad):
        assert grammars.matches(grammar, json.dumps(value)) == (value in good), value


MAY_OVERLAP = {
    "no tag": refs(closed(n=INTEGER), closed(n=NUMBER)),
    "the same tag": refs(tagged("a", n=INTEGER), tagged("a", s=TEXT)),
    "a tag that may be left out": refs(*({**tagged(tag, n=INTEGER), "required": []} for tag in "ab")),
    "of any type": refs({"properties": {"t": {"const": "a"}}, "required": ["t"]}, tagged("b")),
    "a whole number or any": refs(INTEGER, NUMBER),
    "in a circle": {"$defs": {"a": {"$ref": "#/$defs/a"}}, "oneOf": [{"$ref": "#/$defs/a"}, INTEGER]},
}


@pytest.mark.parametrize("name", MAY_OVERLAP)
def test_cases_that_may_overlap_are_still_refused(grammars: Grammars, name: str) -> None:
    with pytest.raises(SchemaRefused):
        enforceable(grammars, MAY_OVERLAP[name])


def test_the_clients_schema_stays_unchanged(grammars: Grammars) -> None:
    for schema, _, _ in SPELT.values():
        before = json.dumps(schema)
        enforceable(grammars, schema)
        assert json.dumps(schema) == before
