"""A guide for the arguments of a tool that is not strict: names and types of properties, from its schema.

Takes the schema of the arguments as a client sent it. Returns a schema that an engine enforces cheaply: it
has names, types, required properties and listed values, and no patterns, formats, lengths or bounds, which
the prompt still declares. A guide never refuses a request: where a schema is of no use, any object will do.
It must not know tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpt_oss_server.constraints.finite import has_finite_value
from gpt_oss_server.constraints.grammar import ANY_OBJECT, JsonBody, schema_json
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.constraints.schema_support import SchemaRefused, read_schema

_KEPT = 1024
_LONGEST = 50_000  # characters of a schema
_SCHEMAS = ("additionalProperties", "items")
_LISTS_OF_SCHEMAS = ("anyOf", "allOf")
_NAMED_SCHEMAS = ("properties", "$defs", "definitions")
_AS_THEY_ARE = ("type", "enum", "const", "$ref", "required")
# With these, other schemas name properties of the same object.
_SHARING = frozenset({"anyOf", "allOf", "oneOf", "$ref", "patternProperties", "additionalProperties"})


def guide(grammars: Grammars, given: Mapping[str, Any] | None) -> JsonBody:
    """The body that the schema guides; any object where it cannot."""
    text = json.dumps(given or {})
    return _guide(grammars, text) if len(text) <= _LONGEST else ANY_OBJECT


@lru_cache(_KEPT)
def _guide(grammars: Grammars, text: str) -> JsonBody:
    """A cache, because agents send the same tools again and again."""
    try:
        clean = read_schema(json.loads(text), lenient=True)
    except SchemaRefused:
        return ANY_OBJECT
    if clean.setdefault("type", "object") != "object":
        return ANY_OBJECT
    outlined = _outline(clean, closes=not _merges(clean))
    is_legal = grammars.problem(f"start: %json {schema_json(outlined)}\n") is None
    return JsonBody(outlined) if is_legal and has_finite_value(outlined, outlined) else ANY_OBJECT


def _outline(schema: Any, *, closes: bool) -> Any:
    """The schema with nothing but what a guide has.

    With `closes`, an object that names properties has no others, unless its schema allows them by a word:
    most authors leave `additionalProperties` out, and a small model invents names.
    """
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {word: schema[word] for word in _AS_THEY_ARE if word in schema}
    for word in _SCHEMAS:
        if word in schema:
            kept[word] = _outline(schema[word], closes=closes)
    for word in _LISTS_OF_SCHEMAS:
        if word in schema:
            kept[word] = [_outline(each, closes=closes) for each in schema[word]]
    for word in _NAMED_SCHEMAS:
        if word in schema:
            kept[word] = {name: _outline(each, closes=closes) for name, each in schema[word].items()}
    if "oneOf" in schema and "anyOf" not in schema:
        kept["anyOf"] = [_outline(each, closes=closes) for each in schema["oneOf"]]
    if "prefixItems" in schema:
        kept.pop("items", None)  # what holds for the items after the first ones holds for no other
    if "patternProperties" in schema:
        kept.pop("additionalProperties", None)
    if closes and schema.get("properties") and not _SHARING & schema.keys():
        kept["additionalProperties"] = False
    return kept


def _merges(schema: Any) -> bool:
    """Whether several schemas describe one object, so that each names a part of its properties."""
    if isinstance(schema, list):
        return any(map(_merges, schema))
    if not isinstance(schema, dict):
        return False
    return len(schema.get("allOf", ())) > 1 or any(map(_merges, schema.values()))
