"""A guide for the arguments of a tool that is not strict: a schema that an engine enforces cheaply.

It has names, types, required properties and listed values, and no patterns, formats, lengths or bounds, which
the prompt still declares. A guide never refuses a request: where a schema is of no use, any object will do.
"""

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any

from gpt_oss_server.constraints.grammar import ANY_OBJECT, JsonBody, schema_json
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.constraints.schema_support import SchemaRefused, read_schema

_KEPT = 512
_MOST = 256  # guides of one request: each takes a few milliseconds, the first time
_LONGEST = 16_000  # characters of a schema
_MOST_TEXT = 200_000  # characters of one request's schemas
_SCHEMAS = ("additionalProperties", "items")
_LISTS_OF_SCHEMAS = ("anyOf", "allOf")
_NAMED_SCHEMAS = ("properties", "$defs", "definitions")
_AS_THEY_ARE = ("type", "enum", "const", "$ref", "required")
# With these, other schemas name properties of the same object.
_CASES = frozenset({"anyOf", "allOf", "oneOf"})
_SHARING = _CASES | {"$ref", "patternProperties", "additionalProperties"}


class Guides:
    """The guides of one request. Schemas beyond the limits guide nothing."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars
        self._left = _MOST
        self._text_left = _MOST_TEXT

    def of(self, schema: Mapping[str, Any]) -> JsonBody:
        """The body that the schema guides; any object where it cannot."""
        text = json.dumps(schema)
        if len(text) > min(_LONGEST, self._text_left) or not self._left:
            return ANY_OBJECT
        self._text_left -= len(text)
        self._left -= 1
        return _guide(self._grammars, text)


@lru_cache(_KEPT)
def _guide(grammars: Grammars, text: str) -> JsonBody:
    """A cache, because agents send the same tools again and again."""
    try:
        clean = read_schema(json.loads(text), lenient=True)
    except SchemaRefused:
        return ANY_OBJECT
    if clean.setdefault("type", "object") != "object":
        return ANY_OBJECT
    outlined = outline(clean, closes=not _merges(clean))
    is_legal = grammars.problem(f"start: %json {schema_json(outlined)}\n") is None
    return JsonBody(outlined) if is_legal else ANY_OBJECT


def outline(schema: Any, *, closes: bool) -> Any:
    """The schema with nothing but what a guide has.

    With `closes`, an object that names properties has no others, unless its schema allows them by a word:
    most authors leave `additionalProperties` out, and a small model invents names.
    """
    if not isinstance(schema, dict):
        return schema
    inside = partial(outline, closes=closes)
    kept: dict[str, Any] = {word: schema[word] for word in _AS_THEY_ARE if word in schema}
    kept |= {word: inside(schema[word]) for word in _SCHEMAS if word in schema}
    kept |= {word: list(map(inside, schema[word])) for word in _LISTS_OF_SCHEMAS if word in schema}
    for word in _NAMED_SCHEMAS:
        if word in schema:
            kept[word] = {name: inside(inner) for name, inner in schema[word].items()}
    if "oneOf" in schema and "anyOf" not in schema:
        kept["anyOf"] = list(map(inside, schema["oneOf"]))
    if "prefixItems" in schema:
        kept.pop("items", None)  # what holds for the items after the first ones holds for no other
    if "patternProperties" in schema:
        kept.pop("additionalProperties", None)
    names = schema.get("properties", {}).keys()
    if closes and names and names >= set(schema.get("required", ())) and not _SHARING & schema.keys():
        kept["additionalProperties"] = False
    return kept


def _merges(schema: Any) -> bool:
    """Whether several schemas describe one object, so that each names a part of its properties."""
    if isinstance(schema, list):
        return any(map(_merges, schema))
    if not isinstance(schema, dict):
        return False
    shares = bool(_CASES & schema.keys()) and ("properties" in schema or "$ref" in schema)
    return shares or len(schema.get("allOf", ())) > 1 or any(map(_merges, schema.values()))
