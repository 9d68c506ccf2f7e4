"""What JSON Schema's keywords mean for enforcement, as tables.

A keyword that is neither in these tables nor read in `schema_support.py` is an annotation, or unknown to JSON
Schema, and constrains nothing.
"""

from __future__ import annotations

from typing import Any, Final

MOST_DEPTH: Final = 48
MOST_NODES: Final = 4_000
MOST_TEXT: Final = 200_000  # characters in names, patterns and constants
MOST_STRING: Final = 5_000  # characters in one of them: the longer a constant, the costlier its masks
MOST_PATTERNS: Final = 100  # in patternProperties: every pair is compared
MOST_STEP: Final = 100_000  # digits of a multipleOf as a whole number: each is a state of the grammar
LARGEST: Final = 2**53 - 1  # in a bound or a constant: the range that every JSON reader keeps exact
MOST_COUNT: Final = 100_000  # of minLength, maxItems and the like: each is a state of the grammar

TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})

_EACH_CASE = "use anyOf with one complete schema for each case"
_ON_YOUR_SIDE = "leave it out, and check on your side"

# Keywords that change what is valid and are not enforced, each with an alternative.
REFUSED: Final[dict[str, str]] = {
    "not": "list what is allowed instead",
    "if": _EACH_CASE,
    "then": _EACH_CASE,
    "else": _EACH_CASE,
    "dependentRequired": _EACH_CASE,
    "dependentSchemas": _EACH_CASE,
    "dependencies": _EACH_CASE,
    "uniqueItems": _ON_YOUR_SIDE,
    "contains": _ON_YOUR_SIDE,
    "minContains": _ON_YOUR_SIDE,
    "maxContains": _ON_YOUR_SIDE,
    "propertyNames": "use patternProperties with additionalProperties false",
    "additionalItems": "it counts only together with a list in items",
    "unevaluatedProperties": "use additionalProperties",
    "unevaluatedItems": "use items",
    "$dynamicRef": "use $ref",
    "$recursiveRef": "use $ref",
}
# Values with which these keywords change nothing.
NEUTRAL: Final[dict[str, Any]] = {
    "uniqueItems": False,
    "unevaluatedProperties": True,
    "unevaluatedItems": True,
    "additionalItems": True,
}
SIZES: Final = (("minLength", "maxLength"), ("minItems", "maxItems"), ("minProperties", "maxProperties"))

FORMATS: Final = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid"}
)
# Other formats of JSON Schema; any other name (int32, password, …) is an annotation.
REFUSED_FORMATS: Final = frozenset(
    {
        "idn-email",
        "idn-hostname",
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    }
)
