"""A JSON schema as a grammar that can be written down.

Takes a schema that `schema_support.py` has read. The grammar accepts what the schema does, in the order in
which it names its properties. Keywords that would need too many rules (patterns, formats, bounds of numbers,
long lengths, several schemas for one value) are left out: the check of the finished turn knows them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gpt_oss_server.constraints.schema_spellings import resolve
from gpt_oss_server.constraints.spelling.nodes import (
    ESCAPE,
    JSON_TEXT,
    PLAIN_UNSIGNED,
    Chars,
    Node,
    Repeat,
    Rule,
    choice,
    maybe,
    one_of,
    sequence,
)

_MOST_LETTERS = 200  # of a string with a length; each is a state of the grammar
_MOST_ITEMS = 50
_MOST_VALUES = 64  # of an integer between bounds
SPELT = "<|"  # begins the name of a special token, which engines read as characters
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "$ref"})
_ANNOTATIONS = frozenset({"$defs", "definitions"})

SPACE = Rule("space")
_SPACE = Repeat(one_of(" \n\r\t"), 0, 24)  # unlimited, a model that has lost its way fills its answer with it
_DIGIT = Chars(((48, 57),))
_WHOLE = choice(["0", sequence(Chars(((49, 57),)), Repeat(_DIGIT, 0, 18))])
_FRACTION = maybe(sequence(".", Repeat(_DIGIT, 1, 18)))
_EXPONENT = maybe(sequence(one_of("eE"), maybe(one_of("+-")), Repeat(_DIGIT, 1, 3)))
_LETTER = choice([PLAIN_UNSIGNED, ESCAPE])
_STRING = sequence('"', JSON_TEXT, '"')


class JsonValues:
    """Builds the nodes of one schema, and the rules that they refer to."""

    def __init__(self, root: Mapping[str, Any], rules: dict[str, Node], prefix: str) -> None:
        self._root, self._rules, self._prefix = root, rules, prefix
        rules[SPACE.name] = _SPACE

    def value(self) -> Node:
        return self._of(self._root)

    def _of(self, schema: Any) -> Node:
        if not isinstance(schema, Mapping):
            return self._named("any", lambda: self._typed({}, _TYPES))
        keywords = schema.keys() - _ANNOTATIONS
        if "const" in schema:
            return self._constant(schema["const"])
        if "enum" in schema:
            return choice([self._constant(each) for each in schema["enum"]])
        if "$ref" in schema:
            target = resolve(self._root, schema["$ref"])
            return self._named(f"ref {schema['$ref']}", lambda: self._of(target))
        cases = schema.get("anyOf") or schema.get("oneOf")
        if cases and len(keywords) == 1:
            return choice([self._of(each) for each in cases])
        if "allOf" in schema and len(keywords) == 1 and len(schema["allOf"]) == 1:
            return self._of(schema["allOf"][0])
        types = schema.get("type", _TYPES)
        types = (types,) if isinstance(types, str) else tuple(types)
        return self._typed({} if _SEVERAL & keywords else schema, types)

    def _typed(self, schema: Mapping[str, Any], types: Sequence[str]) -> Node:
        if "number" in types:
            types = [each for each in types if each != "integer"]
        return choice([self._one_type(schema, name) for name in types])

    def _one_type(self, schema: Mapping[str, Any], name: str) -> Node:
        match name:
            case "object":
                return self._object(schema)
            case "array":
                return self._array(schema)
            case "string":
                return _string(schema)
            case "integer":
                return _integer(schema)
            case "number":
                return sequence(_sign(schema), _WHOLE, _FRACTION, _EXPONENT)
            case "boolean":
                return choice(["true", "false"])
            case _:
                return sequence("null")

    def _named(self, name: str, build: Any) -> Node:
        """A rule, built once: a schema may refer to itself."""
        name = f"{self._prefix} {name}"
        if name not in self._rules:
            self._rules[name] = sequence()
            self._rules[name] = build()
        return Rule(name)

    def _constant(self, value: Any) -> Node:
        match value:
            case Mapping():
                pairs = [
                    sequence(_text(key), SPACE, ":", SPACE, self._constant(v)) for key, v in value.items()
                ]
                return sequence("{", SPACE, *_joined(pairs), SPACE, "}")
            case list():
                return sequence("[", SPACE, *_joined([self._constant(each) for each in value]), SPACE, "]")
            case str():
                return _text(value)
            case _:
                return sequence(json.dumps(value))

    def _array(self, schema: Mapping[str, Any]) -> Node:
        first = [self._of(each) for each in schema.get("prefixItems", ())]
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        rest = schema.get("items", True)
        if first:
            if least < len(first) or (most is not None and most < len(first)):
                return self._list(self._of(True), 0, None)
            more = () if rest is False else (Repeat(sequence(SPACE, ",", SPACE, self._of(rest))),)
            return sequence("[", SPACE, *_joined(first), *more, SPACE, "]")
        if rest is False:
            return sequence("[", SPACE, "]")
        return self._list(self._of(rest), least, most)

    def _list(self, item: Node, least: int, most: int | None) -> Node:
        if most == 0:
            return sequence("[", SPACE, "]")
        least = min(least, _MOST_ITEMS)
        most = None if most is None or most > _MOST_ITEMS else max(most, least)
        more = Repeat(
            sequence(SPACE, ",", SPACE, item), max(least - 1, 0), None if most is None else most - 1
        )
        items = sequence(item, more)
        return sequence("[", SPACE, items if least else maybe(items), SPACE, "]")

    def _object(self, schema: Mapping[str, Any]) -> Node:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        others = schema.get("additionalProperties", True)
        if schema.get("patternProperties") or required - properties.keys():
            others = True
        if any(SPELT in key for key in properties):
            properties, others = {}, True
        pairs = [
            (sequence(_text(key), SPACE, ":", SPACE, self._of(each)), key in required)
            for key, each in properties.items()
            if each is not False
        ]
        if others is False:
            further: Node | None = None
        else:
            further = sequence(_STRING, SPACE, ":", SPACE, self._of(others))
        return sequence("{", SPACE, self._members(pairs, further), SPACE, "}")

    def _members(self, pairs: Sequence[tuple[Node, bool]], further: Node | None) -> Node:
        """In order; from the last to the first, each with and without a comma before it."""
        comma = sequence(SPACE, ",", SPACE)
        if further is None:
            first, later = sequence(), sequence()
        else:
            later = Repeat(sequence(comma, further))
            first = maybe(sequence(further, later))
        for pair, is_required in reversed(pairs):
            with_comma, alone = sequence(comma, pair, later), sequence(pair, later)
            if is_required:
                first, later = alone, with_comma
            else:
                first, later = choice([alone, first]), choice([with_comma, later])
            first, later = self._rule_for(first), self._rule_for(later)
        return first

    def _rule_for(self, node: Node) -> Node:
        """Its own rule: written out, the nodes after optional ones would double with each of them."""
        name = f"{self._prefix} part {len(self._rules)}"
        self._rules[name] = node
        return Rule(name)


def _joined(parts: Sequence[Node]) -> list[Node]:
    comma = sequence(SPACE, ",", SPACE)
    return [each for part in parts for each in (comma, part)][1:]


def _text(value: str) -> Node:
    written = json.dumps(value, ensure_ascii=False)
    return _STRING if SPELT in written else sequence(written)


def _string(schema: Mapping[str, Any]) -> Node:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return _STRING
    if least > _MOST_LETTERS:
        return _STRING
    if most is None or most > _MOST_LETTERS:
        return sequence('"', Repeat(_LETTER, least, least), JSON_TEXT, '"') if least else _STRING
    return sequence('"', Repeat(_LETTER, least, most), '"')


def _integer(schema: Mapping[str, Any]) -> Node:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if "exclusiveMinimum" in schema:
        low = max(low, math.floor(schema["exclusiveMinimum"]) + 1)
    if "exclusiveMaximum" in schema:
        high = min(high, math.ceil(schema["exclusiveMaximum"]) - 1)
    if 0 <= high - low < _MOST_VALUES:
        step = schema.get("multipleOf", 1)
        found = [str(each) for each in range(math.ceil(low), math.floor(high) + 1) if each % step == 0]
        if found:
            return choice(found)
    return sequence(_sign(schema), _WHOLE)


def _sign(schema: Mapping[str, Any]) -> Node:
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    return sequence() if low >= 0 else maybe(sequence("-"))
