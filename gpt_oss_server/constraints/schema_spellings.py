"""Rewrites spellings of JSON Schema to the equivalent one that is enforced.

Those are draft 7's tuples (which the official SDK sends for Zod), OpenAPI's `nullable` and boolean exclusive
bounds, `propertyNames` that allow any string or list the names, and cases that cannot overlap. The schemas
within remain the same objects.
"""

import json
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final
from urllib.parse import quote

from gpt_oss_server.json_values import resolve

Schema = Mapping[str, Any]

_ANY_NAME: Final[tuple[Any, ...]] = (True, {}, {"type": "string"})
_BOUNDS: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
_OF_SEVERAL: Final = ("$ref", "const", "anyOf", "oneOf", "allOf")
_ANNOTATIONS: Final = ("title", "description", "default", "examples")
_MOST_REFERENCES: Final = 16  # in a chain
_MOST_CASES: Final = 200  # every pair is compared
_Outline = tuple[set[str], dict[str, frozenset[str]]]  # a case's types, and its properties' constants


def respelt(given: dict[str, Any], root: Any) -> dict[str, Any]:
    """The rewritten schema. `root` is the document into which its references point."""
    schema = dict(given)
    if schema.pop("nullable", None) is True:
        schema = _or_null(schema)
    if isinstance(schema.get("items"), list) and "prefixItems" not in schema:
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    for bound, exclusive in _BOUNDS:
        if isinstance(schema.get(exclusive), bool) and bound in schema and schema.pop(exclusive):
            schema[exclusive] = schema.pop(bound)
    if "propertyNames" in schema:
        schema = _without_names(schema, root)
    if "oneOf" in schema and "anyOf" not in schema and _are_apart(schema, root):
        schema["anyOf"] = schema.pop("oneOf")
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if any(keyword in schema for keyword in _OF_SEVERAL):
        return {"anyOf": [schema, {"type": "null"}]}
    kinds, values = schema.get("type"), schema.get("enum")
    if isinstance(kinds, str | list) and "null" not in kinds:
        schema["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
    if isinstance(values, list) and None not in values:
        schema["enum"] = [*values, None]
    return schema


def _without_names(schema: dict[str, Any], root: Any) -> dict[str, Any]:
    """Removes `propertyNames` that allow any name, and turns listed names into properties."""
    names, value = schema["propertyNames"], schema.get("additionalProperties", True)
    rest = {keyword: each for keyword, each in schema.items() if keyword != "propertyNames"}
    if names in _ANY_NAME:
        return rest
    listed = _listed(names if isinstance(names, dict) and names.keys() - {"$ref"} else _followed(names, root))
    if listed is None or "properties" in schema or "patternProperties" in schema:
        return schema
    return {**rest, "properties": dict.fromkeys(listed, value), "additionalProperties": False}


def _listed(names: Schema) -> list[str] | None:
    """The names, if the schema lists them and states nothing else about them."""
    plain = names.keys() <= {"type", "enum", "const", *_ANNOTATIONS}
    if not plain or names.get("type") not in (None, "string"):
        return None
    listed = [names["const"]] if "const" in names else names.get("enum")
    whole = isinstance(listed, list) and all(isinstance(name, str) for name in listed)
    return listed if whole else None


def _are_apart(schema: Schema, root: Any) -> bool:
    """Whether no value can fit two of the cases; llguidance does not compare cases that are references.

    A discriminator distinguishes cases by the schema's own declaration, whether it is required or not.
    """
    cases, tag = schema["oneOf"], schema.get("discriminator")
    if not isinstance(cases, list) or len(cases) > _MOST_CASES:
        return False
    if not any(isinstance(case, dict) and "$ref" in case for case in cases):
        return False
    name = tag.get("propertyName") if isinstance(tag, dict) else None
    known = [_followed(case, root) for case in cases]
    outlines = [(_kinds(case), _constants(case, name)) for case in known]
    return all(_apart(one, other) for one, other in combinations(outlines, 2))


def _followed(case: Any, root: Any) -> Schema:
    """The schema that a case stands for, or an empty one if it is not known."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(case, dict):
            break
        if not isinstance(case.get("$ref"), str):
            return case
        case = resolve(root, case["$ref"])
    return {}


def _apart(one: _Outline, other: _Outline) -> bool:
    (first, mine), (second, others) = one, other
    if first and second and not first & second:
        return True
    if not first == second == {"object"}:  # properties say nothing about other values
        return False
    return any(values.isdisjoint(others[name]) for name, values in mine.items() if name in others)


def _kinds(schema: Schema) -> set[str]:
    stated = schema.get("type")
    kinds = {stated} if isinstance(stated, str) else {kind for kind in stated or () if isinstance(kind, str)}
    return kinds | {"integer"} if "number" in kinds else kinds


def _constants(schema: Schema, tag: Any) -> dict[str, frozenset[str]]:
    """The required properties that have only a few values, each value as JSON."""
    properties, required = schema.get("properties"), schema.get("required")
    constants: dict[str, frozenset[str]] = {}
    needed = {each for each in required or () if isinstance(each, str)}
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(inner, dict) or (name != tag and name not in needed):
            continue
        values = [inner["const"]] if "const" in inner else inner.get("enum")
        if isinstance(values, list) and all(isinstance(value, str | bool) for value in values):
            constants[name] = frozenset(map(json.dumps, values))
    return constants


def pointer_part(name: str) -> str:
    """A name as it is spelt within a reference."""
    return quote(name.replace("~", "~0").replace("/", "~1"))
