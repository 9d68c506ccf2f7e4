"""A JSON schema as a grammar that can be written down, with its properties in the schema's order.

Keywords that would need too many rules (patterns, formats, bounds of numbers, long lengths, several schemas
for one value) are left out: the check of the finished turn knows them.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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
from gpt_oss_server.json_values import resolve

_MOST_LETTERS = 200  # of a string with a length; each is a state of the grammar
_MOST_ITEMS = 50
_MOST_VALUES = 64  # of an integer between bounds
SPELT = "<|"  # begins the name of a special token, which engines read as characters
_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SEVERAL = frozenset({"anyOf", "oneOf", "allOf", "$ref"})
_ANNOTATIONS = frozenset({"$defs", "definitions"})

SPACE = Rule("space")
_SPACE = Repeat(one_of(" \n\r\t"), 0, 24)  # unlimited, a model that has lost its way fills its answer with it
_COMMA = sequence(SPACE, ",", SPACE)
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
            return choice([self._constant(value) for value in schema["enum"]])
        if "$ref" in schema:
            target = resolve(self._root, schema["$ref"])
            return self._named(f"ref {schema['$ref']}", lambda: self._of(target))
        cases = schema.get("anyOf") or schema.get("oneOf")
        if cases and len(keywords) == 1:
            return choice([self._of(case) for case in cases])
        if "allOf" in schema and len(keywords) == 1 and len(schema["allOf"]) == 1:
            return self._of(schema["allOf"][0])
        types = schema.get("type", _TYPES)
        types = (types,) if isinstance(types, str) else tuple(types)
        return self._typed({} if _SEVERAL & keywords else schema, types)

    def _typed(self, schema: Mapping[str, Any], types: Sequence[str]) -> Node:
        if "number" in types:
            types = [name for name in types if name != "integer"]
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

    def _named(self, name: str, build: Callable[[], Node]) -> Node:
        """A rule, built once: a schema may refer to itself."""
        name = f"{self._prefix} {name}"
        if name not in self._rules:
            self._rules[name] = sequence()
            self._rules[name] = build()
        return Rule(name)

    def _constant(self, value: Any) -> Node:
        match value:
            case Mapping():
                return _enclosed("{", [_pair(_text(key), self._constant(v)) for key, v in value.items()], "}")
            case list():
                return _enclosed("[", map(self._constant, value), "]")
            case str():
                return _text(value)
            case _:
                return sequence(json.dumps(value))

    def _array(self, schema: Mapping[str, Any]) -> Node:
        first = [self._of(item) for item in schema.get("prefixItems", ())]
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        rest = schema.get("items", True)
        if first:
            if least < len(first) or (most is not None and most < len(first)):
                return self._list(self._of(True), 0, None)
            more = None if rest is False else Repeat(sequence(_COMMA, self._of(rest)))
            return _enclosed("[", first, "]", more)
        if rest is False or most == 0:
            return sequence("[", SPACE, "]")
        return self._list(self._of(rest), least, most)

    def _list(self, item: Node, least: int, most: int | None) -> Node:
        least = min(least, _MOST_ITEMS)
        most = None if most is None or most > _MOST_ITEMS else max(most, least)
        more = Repeat(sequence(_COMMA, item), max(least - 1, 0), None if most is None else most - 1)
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
            (_pair(_text(key), self._of(value)), key in required)
            for key, value in properties.items()
            if value is not False
        ]
        further = None if others is False else _pair(_STRING, self._of(others))
        return sequence("{", SPACE, self._members(pairs, further), SPACE, "}")

    def _members(self, pairs: Sequence[tuple[Node, bool]], further: Node | None) -> Node:
        """In order; from the last to the first, each with and without a comma before it."""
        first, later = sequence(), sequence()
        if further is not None:
            later = Repeat(sequence(_COMMA, further))
            first = maybe(sequence(further, later))
        for pair, is_required in reversed(pairs):
            with_comma, alone = sequence(_COMMA, pair, later), sequence(pair, later)
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


def _enclosed(begin: str, parts: Iterable[Node], end: str, more: Node | None = None) -> Node:
    joined = [node for part in parts for node in (_COMMA, part)][1:]
    return sequence(begin, SPACE, *joined, *([] if more is None else [more]), SPACE, end)


def _pair(key: Node, value: Node) -> Node:
    return sequence(key, SPACE, ":", SPACE, value)


def _text(value: str) -> Node:
    written = json.dumps(value, ensure_ascii=False)
    return _STRING if SPELT in written else sequence(written)


def _string(schema: Mapping[str, Any]) -> Node:
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    if least > _MOST_LETTERS or (not least and most > _MOST_LETTERS):
        return _STRING
    if most > _MOST_LETTERS:
        return sequence('"', Repeat(_LETTER, least, least), JSON_TEXT, '"')
    return sequence('"', Repeat(_LETTER, least, most), '"')


def _integer(schema: Mapping[str, Any]) -> Node:
    low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
    if "exclusiveMinimum" in schema:
        low = max(low, math.floor(schema["exclusiveMinimum"]) + 1)
    if "exclusiveMaximum" in schema:
        high = min(high, math.ceil(schema["exclusiveMaximum"]) - 1)
    if 0 <= high - low < _MOST_VALUES:
        step = schema.get("multipleOf", 1)
        within = range(math.ceil(low), math.floor(high) + 1)
        if values := [str(number) for number in within if number % step == 0]:
            return choice(values)
    return sequence(_sign(schema), _WHOLE)


def _sign(schema: Mapping[str, Any]) -> Node:
    low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
    return sequence() if low >= 0 else maybe(sequence("-"))
