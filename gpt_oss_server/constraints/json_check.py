"""Checks whether a JSON value fits a schema that `schema_support.py` has read.

llguidance matches patterns and formats, in time linear in the text: the schema is the client's, and a
backtracking match of its pattern could block all other requests.
"""

import json
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.json_values import resolve

_MOST_STEPS = 200_000  # anyOf within anyOf can take exponentially many
_MOST_DEPTH = 150

Schema = Mapping[str, Any]


class _TooMuch(Exception):
    pass


class JsonCheck:
    def __init__(self, schema: Schema, grammars: Grammars) -> None:
        self._root = schema
        self._grammars = grammars
        self._strings: dict[str, Any] = {}  # compiled string schemas
        self._steps = 0

    def problem(self, value: Any) -> str | None:
        try:
            return next(self._problems(self._root, value, "", 0), None)
        except _TooMuch:
            return "it is too deep or too large to be checked"

    def _problems(self, schema: Any, value: Any, at: str, depth: int) -> Iterator[str]:
        self._steps += 1
        if depth > _MOST_DEPTH or self._steps > _MOST_STEPS:
            raise _TooMuch
        if schema is False:
            yield f"nothing is allowed{_place(at)}"
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            yield from self._problems(resolve(self._root, schema["$ref"]), value, at, depth + 1)
        yield from _value_problems(schema, value, at)
        yield from self._case_problems(schema, value, at, depth)
        if isinstance(value, str):
            yield from self._string_problems(schema, value, at)
        elif _is_number(value):
            yield from _number_problems(schema, value, at)
        elif isinstance(value, list):
            yield from self._item_problems(schema, value, at, depth)
        elif isinstance(value, dict):
            yield from self._property_problems(schema, value, at, depth)

    def _case_problems(self, schema: Schema, value: Any, at: str, depth: int) -> Iterator[str]:
        def fits(case: Any) -> bool:
            return next(self._problems(case, value, at, depth + 1), None) is None

        for part in schema.get("allOf", ()):
            yield from self._problems(part, value, at, depth + 1)
        if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
            yield f"it fits none of the cases of anyOf{_place(at)}"
        if "oneOf" in schema and (fitting := sum(map(fits, schema["oneOf"]))) != 1:
            yield f"it fits {fitting} of the cases of oneOf{_place(at)}, and must fit one"

    def _string_problems(self, schema: Schema, value: str, at: str) -> Iterator[str]:
        if len(value) < schema.get("minLength", 0):
            yield f"the text{_place(at)} is shorter than {schema['minLength']}"
        if len(value) > schema.get("maxLength", math.inf):
            yield f"the text{_place(at)} is longer than {schema['maxLength']}"
        for keyword in ("pattern", "format"):
            if keyword in schema and not self._matches(keyword, schema[keyword], value):
                yield f"the text{_place(at)} does not match the {keyword} {schema[keyword]!r:.80}"

    def _item_problems(self, schema: Schema, value: list[Any], at: str, depth: int) -> Iterator[str]:
        yield from _size_problems(schema, len(value), "Items", at)
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        for index, item in enumerate(value):
            inner = first[index] if index < len(first) else rest
            yield from self._problems(inner, item, f"{at}[{index}]", depth + 1)

    def _property_problems(self, schema: Schema, value: dict[str, Any], at: str, depth: int) -> Iterator[str]:
        yield from _size_problems(schema, len(value), "Properties", at)
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{name!r:.80} is missing{_place(at)}"
        patterns = schema.get("patternProperties", {})
        for name, inner in value.items():
            schemas = [schema["properties"][name]] if name in schema.get("properties", {}) else []
            schemas += [part for pattern, part in patterns.items() if self._matches("pattern", pattern, name)]
            for part in schemas or [schema.get("additionalProperties", True)]:
                yield from self._problems(part, inner, f"{at}.{name}" if at else name, depth + 1)

    def _matches(self, keyword: str, wanted: str, text: str) -> bool:
        key = json.dumps({"type": "string", keyword: wanted})
        if key not in self._strings:
            self._strings[key] = self._grammars.compile(f"start: %json {key}\n")
        return self._grammars.matches(self._strings[key], json.dumps(text, ensure_ascii=False))


def _value_problems(schema: Schema, value: Any, at: str) -> Iterator[str]:
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is(value, name) for name in types):
            yield f"{_spelt(value)}{_place(at)} is not of type {' or '.join(types)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{_spelt(value)}{_place(at)} is not {_spelt(schema['const'])}"
    if "enum" in schema and not any(_same(value, listed) for listed in schema["enum"]):
        yield f"{_spelt(value)}{_place(at)} is none of {_spelt(schema['enum'])}"


def _number_problems(schema: Schema, value: int | float, at: str) -> Iterator[str]:
    bounds = (
        ("minimum", lambda bound: value >= bound),
        ("maximum", lambda bound: value <= bound),
        ("exclusiveMinimum", lambda bound: value > bound),
        ("exclusiveMaximum", lambda bound: value < bound),
        ("multipleOf", lambda step: _is_multiple(value, step)),
    )
    for keyword, holds in bounds:
        if keyword in schema and not holds(schema[keyword]):
            yield f"{_spelt(value)}{_place(at)} breaks {keyword} {schema[keyword]}"


def _size_problems(schema: Schema, size: int, what: str, at: str) -> Iterator[str]:
    if size < schema.get(f"min{what}", 0):
        yield f"there are fewer than {schema[f'min{what}']} {what.lower()}{_place(at)}"
    if size > schema.get(f"max{what}", math.inf):
        yield f"there are more than {schema[f'max{what}']} {what.lower()}{_place(at)}"


def _is(value: Any, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return _is_number(value) and value == value // 1
        case "number":
            return _is_number(value)
        case _:
            return isinstance(value, {"string": str, "array": list, "object": dict}[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_multiple(value: int | float, step: int | float) -> bool:
    """Decides for the numbers as they are spelt: 0.3 is a multiple of 0.1."""
    return Fraction(str(value)) % Fraction(str(step)) == 0


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, and 1.0 is 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _place(at: str) -> str:
    return f" at {at}" if at else ""


def _spelt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
