"""Decides which JSON schemas can be enforced, and explains what is wrong with one that cannot.

What does not constrain an answer is left out: a keyword that is neither in the tables here nor has a reader
is an annotation. llguidance enforces the result, and has the last word on it (see `json_grammar.py`).
"""

import math
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from typing import Any, Final

from gpt_oss_server.constraints.schema_spellings import pointer_part, respelt
from gpt_oss_server.json_values import resolve

_MOST_DEPTH: Final = 48
_MOST_NODES: Final = 4_000
_MOST_TEXT: Final = 200_000  # characters in names, patterns and constants
_MOST_STRING: Final = 5_000  # characters in one of them: the longer a constant, the costlier its masks
_MOST_PATTERNS: Final = 100  # in patternProperties: every pair is compared
# Any of them may come next, in any place of the object: masks would be slow, and beyond 500 there are none.
_MOST_OPTIONAL: Final = 400
_MOST_STEP: Final = 100_000  # digits of a multipleOf as a whole number: each is a state of the grammar
_LARGEST: Final = 2**53 - 1  # in a bound or a constant: the range that every JSON reader keeps exact
_MOST_COUNT: Final = 100_000  # of minLength, maxItems and the like: each is a state of the grammar

_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})

_CASES = ("if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies")
# Keywords that change what is valid and are not enforced, each with an alternative.
_REFUSED: Final[dict[str, str]] = {
    "not": "list what is allowed instead",
    **dict.fromkeys(_CASES, "use anyOf with one complete schema for each case"),
    **dict.fromkeys(
        ("uniqueItems", "contains", "minContains", "maxContains"), "leave it out, and check on your side"
    ),
    "propertyNames": "use patternProperties with additionalProperties false",
    "additionalItems": "it counts only together with a list in items",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), "use $ref"),
}
# Values with which these keywords change nothing.
_NEUTRAL: Final[dict[str, Any]] = {
    "uniqueItems": False,
    **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems", "additionalItems"), True),
}
_SIZES: Final = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))

_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
# Other formats of JSON Schema; any other name (int32, password, …) is an annotation.
_REFUSED_FORMATS = {"idn-email", "idn-hostname", "uri-reference", "iri", "iri-reference"}
_REFUSED_FORMATS |= {"uri-template", "json-pointer", "relative-json-pointer", "regex"}


class SchemaRefused(Exception):
    """The reason, for the client; `at` is the place in the schema, e.g. `properties.name.pattern`."""

    def __init__(self, at: str, why: str) -> None:
        super().__init__(why)
        self.at = at


class SchemaMalformed(SchemaRefused):
    """It is not a JSON schema at all."""


class _SchemaReader:
    """Reads one schema. Counts nodes and characters, so that no schema costs more than the limits allow."""

    def __init__(self, root: Any, *, lenient: bool = False) -> None:
        """`lenient`: leaves out what cannot be enforced, instead of refusing it."""
        self._root = root
        self._lenient = lenient
        self._nodes = self._text = 0
        self._read: dict[int, Any] = {}  # by the identity of each object that was read as a schema
        self._referring: list[tuple[dict[str, Any], str]] = []

    def read(self) -> Any:
        clean = self.schema(self._root, "", 0)
        for schema, at in self._referring:
            reference = schema["$ref"]
            target = resolve(self._root, reference)
            if id(target) not in self._read and not isinstance(resolve(clean, reference), bool):
                kind = SchemaRefused if self._lenient and target is not None else SchemaMalformed
                raise kind(at, f"there is no schema {reference!r:.80}; put it under $defs")
            read = self._read.get(id(target), target)
            if resolve(clean, reference) is not read:  # the enforced spelling has it in another place
                clean.setdefault("$defs", {})[reference] = read
                schema["$ref"] = f"#/$defs/{pointer_part(reference)}"
        return clean

    def schema(self, given: Any, at: str, depth: int) -> Any:
        if isinstance(given, bool):
            return given
        if not isinstance(given, dict):
            raise SchemaMalformed(at, "a schema must be an object or a boolean")
        if self._lenient and (depth > _MOST_DEPTH or self._nodes >= _MOST_NODES):
            self._read[id(given)] = True
            return True
        if depth > _MOST_DEPTH:
            raise SchemaRefused(at, f"it is nested more than {_MOST_DEPTH} deep; use $defs and $ref")
        self._count(at)
        clean: dict[str, Any] = {}
        left_out: set[str] = set()
        for keyword, value in respelt(given, self._root).items():
            try:
                self._keyword(clean, keyword, value, at, depth)
            except SchemaRefused as refused:
                if not self._lenient or isinstance(refused, SchemaMalformed):
                    raise
                left_out |= {keyword, OF_THE_REST.get(keyword, keyword)}
        clean = {keyword: binding for keyword, binding in clean.items() if keyword not in left_out}
        for low, high in _SIZES:
            if clean.get(low, 0) > clean.get(high, _MOST_COUNT):
                if not self._lenient:
                    raise SchemaRefused(_join(at, low), f"it is more than {high}, so that no value fits")
                del clean[low], clean[high]
        if len(clean.get("properties", {}).keys() - set(clean.get("required", ()))) > _MOST_OPTIONAL:
            if not self._lenient:
                advice = "list more in `required`, with the type null as well, or group them in objects"
                problem = f"at most {_MOST_OPTIONAL} properties of an object can be optional: {advice}"
                raise SchemaRefused(_join(at, "properties"), problem)
            del clean["properties"]
            clean.pop("additionalProperties", None)
        self._read[id(given)] = clean
        if "$ref" in clean:
            self._referring.append((clean, _join(at, "$ref")))
        return clean

    def _keyword(self, clean: dict[str, Any], keyword: str, value: Any, at: str, depth: int) -> None:
        """Adds the keyword's constraint to `clean`."""
        place = _join(at, keyword)
        if keyword in _REFUSED:
            if keyword in _NEUTRAL and value == _NEUTRAL[keyword]:
                return
            raise SchemaRefused(place, f"the keyword '{keyword}' is not enforced: {_REFUSED[keyword]}")
        if keyword in ("$id", "$anchor", "$dynamicAnchor", "id") and isinstance(value, str):
            if at and keyword == "$id":
                raise SchemaRefused(place, "the keyword '$id' is served at the top only: use $defs")
            return
        reader = _READERS.get(keyword)
        binding = None if reader is None else reader(self, value, place, depth)
        if binding is not None or keyword == "const":
            clean[keyword] = binding

    def schemas(self, given: Any, at: str, depth: int) -> dict[str, Any]:
        if not isinstance(given, dict):
            raise SchemaMalformed(at, "it must be an object of schemas")
        for name in given:
            self._spend(name, at)
        return {name: self.schema(inner, _join(at, name), depth + 1) for name, inner in given.items()}

    def patterns(self, given: Any, at: str, depth: int) -> dict[str, Any]:
        read = self.schemas(given, at, depth)
        if len(read) > _MOST_PATTERNS:
            raise SchemaRefused(at, f"at most {_MOST_PATTERNS} patterns are supported")
        return read

    def list_of_schemas(self, given: Any, at: str, depth: int) -> list[Any]:
        if not isinstance(given, list) or not given:
            raise SchemaMalformed(at, "it must be a list of schemas, and not empty")
        return [self.schema(inner, f"{at}[{i}]", depth + 1) for i, inner in enumerate(given)]

    def one_schema(self, given: Any, at: str, depth: int) -> Any:
        return self.schema(given, at, depth + 1)

    def type(self, given: Any, at: str, depth: int) -> Any:
        names = given if isinstance(given, list) else [given]
        if not names or not all(isinstance(name, str) and name in _TYPES for name in names):
            raise SchemaMalformed(at, f"it must be one of {', '.join(sorted(_TYPES))}, or a list of these")
        return given

    def names(self, given: Any, at: str, depth: int) -> list[str]:
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            raise SchemaMalformed(at, "it must be a list of property names")
        for name in given:
            self._spend(name, at)
        return list(dict.fromkeys(given))

    def text(self, given: Any, at: str, depth: int) -> str:
        if not isinstance(given, str):
            raise SchemaMalformed(at, "it must be a string")
        self._spend(given, at)
        return given

    def ref(self, given: Any, at: str, depth: int) -> str:
        if not isinstance(given, str) or not (given == "#" or given.startswith("#/")):
            raise SchemaRefused(at, f"only references like '#/$defs/…' are followed, not {given!r:.80}")
        return given

    def constant(self, given: Any, at: str, depth: int) -> Any:
        self._walk_constant(given, at, depth)
        return given

    def constants(self, given: Any, at: str, depth: int) -> list[Any]:
        if not isinstance(given, list) or not given:
            raise SchemaMalformed(at, "it must be a list of values, and not empty")
        self._walk_constant(given, at, depth)
        return given

    def count(self, given: Any, at: str, depth: int) -> int:
        number = self.number(given, at, depth)
        if number != int(number) or number < 0:
            raise SchemaMalformed(at, "it must be a whole number, 0 or more")
        if number > _MOST_COUNT:
            raise SchemaRefused(at, f"counts are enforced up to {_MOST_COUNT}")
        return int(number)

    def number(self, given: Any, at: str, depth: int) -> int | float:
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise SchemaMalformed(at, "it must be a number")
        if not abs(given) <= _LARGEST or not math.isfinite(given):
            raise SchemaRefused(at, f"numbers are enforced up to {_LARGEST}")
        return given

    def step(self, given: Any, at: str, depth: int) -> int | float:
        number = self.number(given, at, depth)
        if number <= 0:
            raise SchemaMalformed(at, "it must be more than 0")
        if int("".join(map(str, Decimal(str(number)).as_tuple().digits))) > _MOST_STEP:
            raise SchemaRefused(at, f"steps are enforced up to {_MOST_STEP}, decimals counted")
        return number

    def format(self, given: Any, at: str, depth: int) -> str | None:
        if not isinstance(given, str):
            raise SchemaMalformed(at, "it must be a string")
        if given in _REFUSED_FORMATS:
            known = ", ".join(sorted(_FORMATS))
            raise SchemaRefused(at, f"the format '{given}' is not enforced; these are: {known}")
        return given if given in _FORMATS else None

    def _walk_constant(self, given: Any, at: str, depth: int) -> None:
        if depth > _MOST_DEPTH:
            raise SchemaRefused(at, f"it is nested more than {_MOST_DEPTH} deep")
        self._count(at)
        match given:
            case str():
                self._spend(given, at)
            case int() | float() if not isinstance(given, bool):
                self.number(given, at, depth)
            case list():
                for inner in given:
                    self._walk_constant(inner, at, depth + 1)
            case dict():
                for name, inner in given.items():
                    self._spend(name, at)
                    self._walk_constant(inner, at, depth + 1)

    def _count(self, at: str) -> None:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise SchemaRefused(at, f"it has more than {_MOST_NODES} schemas and constants")

    def _spend(self, text: str, at: str) -> None:
        if len(text) > _MOST_STRING:
            raise SchemaRefused(at, f"a name, pattern or constant may have {_MOST_STRING} characters")
        self._text += len(text)
        if self._text > _MOST_TEXT:
            raise SchemaRefused(at, f"its names and constants have more than {_MOST_TEXT} characters")


# Keywords for what their counterpart does not name: without the counterpart, they would constrain more.
OF_THE_REST = {
    "properties": "additionalProperties",
    "patternProperties": "additionalProperties",
    "prefixItems": "items",
}
_Read = Callable[[_SchemaReader, Any, str, int], Any]
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_READERS: dict[str, _Read] = {
    "type": _SchemaReader.type,
    "enum": _SchemaReader.constants,
    "const": _SchemaReader.constant,
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _SchemaReader.list_of_schemas),
    "$ref": _SchemaReader.ref,
    **dict.fromkeys(("$defs", "definitions", "properties"), _SchemaReader.schemas),
    "patternProperties": _SchemaReader.patterns,
    **dict.fromkeys(("additionalProperties", "items"), _SchemaReader.one_schema),
    "required": _SchemaReader.names,
    **dict.fromkeys(chain.from_iterable(_SIZES), _SchemaReader.count),
    "pattern": _SchemaReader.text,
    "format": _SchemaReader.format,
    **dict.fromkeys(_BOUNDS, _SchemaReader.number),
    "multipleOf": _SchemaReader.step,
}


def read_schema(given: Any, *, lenient: bool = False) -> dict[str, Any]:
    """The schema without what does not constrain; raises `SchemaRefused`, unless `lenient`."""
    if not isinstance(given, dict):
        raise SchemaMalformed("", "it must be a JSON schema object")
    clean: dict[str, Any] = _SchemaReader(given, lenient=lenient).read()
    return clean


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
