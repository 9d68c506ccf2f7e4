"""Schemas that are not strict: what can be enforced is, and nothing that the client did not write."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from gpt_oss_server.constraints.grammar import schema_json
from gpt_oss_server.constraints.json_check import JsonCheck
from gpt_oss_server.constraints.json_grammar import as_far_as_enforceable
from gpt_oss_server.constraints.matcher import grammars_of
from gpt_oss_server.constraints.schema_support import SchemaMalformed
from gpt_oss_server.harmony.encoding import Encoding

LOOK: dict[str, Any] = {"type": "string", "pattern": "^(?!a).*$"}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def nested(depth: int) -> tuple[dict[str, Any], Any]:
    schema, value = {"type": "integer"}, 1
    for _ in range(depth):
        schema, value = closed(a=schema), {"a": value}
    return schema, value


N: dict[str, Any] = {"type": "integer"}
# A schema, values that fit it, and values that must still be refused.
CASES: list[tuple[dict[str, Any], Any, Any]] = [
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
    (*nested(60), {"a": 1}),
    (closed(n=N, x={"anyOf": [nested(60)[0], N]}), {"n": 1, "x": 1}, {"n": "one", "x": 1}),
    (closed(n=N, x={"enum": ["a" * 6000, "b"]}), {"n": 1, "x": "b"}, {"n": "one", "x": "b"}),
    (closed(n=N, x={"type": "object", "properties": {"y" * 6000: N}, "additionalProperties": False}),
     {"n": 1, "x": {"y" * 6000: 1}}, {"n": 1, "x": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "fits", "breaks"), CASES)
def test_what_fits_the_schema_fits_its_loose_form(
    encoding: Encoding, schema: dict[str, Any], fits: Any, breaks: Any
) -> None:
    grammars = grammars_of(encoding)
    loose = as_far_as_enforceable(grammars, schema)
    grammars.compile(f"start: %json {schema_json(loose)}\n")
    jsonschema.Draft202012Validator(loose).validate(fits)
    assert JsonCheck(loose, grammars).problem(fits) is None
    assert JsonCheck(loose, grammars).problem(breaks) is not None


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"properties": []},
        closed(n={"$ref": "#/$defs/missing"}),
        {"anyOf": []},
        {"minLength": -1},
    ],
)
def test_an_invalid_schema_is_reported_nevertheless(encoding: Encoding, schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaMalformed):
        as_far_as_enforceable(grammars_of(encoding), schema)
