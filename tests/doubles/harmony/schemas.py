"""JSON schemas over every keyword that is enforced, in the style of public test suites."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def closed(**properties: Any) -> Schema:
    """An object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
INTEGER: Schema = {"type": "integer"}
TREE: Schema = closed(
    value=INTEGER, children={"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}
)
LINKED: Schema = closed(name=TEXT, next={"anyOf": [{"$ref": "#"}, {"type": "null"}]})

SCHEMAS: dict[str, Schema] = {
    "any": {},
    "any object": {"type": "object"},
    "any list": {"type": "array"},
    "string": TEXT,
    "number": NUMBER,
    "integer": INTEGER,
    "boolean": {"type": "boolean"},
    "null": {"type": "null"},
    "types": {"type": ["string", "integer", "null"]},
    "enum of strings": {"enum": ["red", "green", "blue", "東京", 'a "quoted" one']},
    "enum of anything": {"enum": ["a", 1, 2.5, None, True, [1, "x"], {"k": "v"}]},
    "enum of a type": {"type": "string", "enum": ["small", "large"]},
    "const": {"const": "only this"},
    "const object": {"const": {"a": [1, 2, {"b": None}]}},
    "minLength": {"type": "string", "minLength": 5},
    "maxLength": {"type": "string", "maxLength": 4},
    "length of wide characters": {"type": "string", "minLength": 2, "maxLength": 2, "pattern": "^[東京🧠]*$"},
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{3}$"},
    "pattern anywhere": {"type": "string", "pattern": "ab+c", "maxLength": 12},
    "pattern with choices": {"type": "string", "pattern": "^(cat|dog)s?$"},
    "pattern of letters": {"type": "string", "pattern": "^[a-zà-ÿ]{1,8}$"},
    "pattern with classes": {"type": "string", "pattern": "^\\d{4}-\\w{1,5}\\s?$"},
    "pattern and length": {"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 6},
    "pattern with quotes": {"type": "string", "pattern": '^"[a-c]"\\\\$'},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "date-time": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "format": "duration"},
    "uuid": {"type": "string", "format": "uuid"},
    "email": {"type": "string", "format": "email"},
    "hostname": {"type": "string", "format": "hostname"},
    "ipv4": {"type": "string", "format": "ipv4"},
    "ipv6": {"type": "string", "format": "ipv6"},
    "uri": {"type": "string", "format": "uri"},
    "an unknown format": {"type": "string", "format": "colour", "maxLength": 5},
    "minimum": {"type": "integer", "minimum": 10},
    "maximum": {"type": "integer", "maximum": -3},
    "range": {"type": "integer", "minimum": -5, "maximum": 117},
    "range of numbers": {"type": "number", "minimum": 0.25, "maximum": 1.75},
    "exclusive": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "exclusive integers": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6},
    "multipleOf": {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 500},
    "multipleOf a fraction": {"type": "number", "multipleOf": 0.5, "minimum": 0, "maximum": 9},
    "items": {"type": "array", "items": INTEGER},
    "minItems": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2},
    "maxItems": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    "items of objects": {
        "type": "array",
        "items": closed(x=INTEGER, y=INTEGER),
        "minItems": 1,
        "maxItems": 3,
    },
    "prefixItems": {"type": "array", "prefixItems": [TEXT, INTEGER], "items": False, "minItems": 2},
    "prefixItems and more": {
        "type": "array",
        "prefixItems": [TEXT],
        "items": {"type": "null"},
        "minItems": 1,
    },
    "an empty list": {"type": "array", "items": False},
    "object": closed(name=TEXT, age=INTEGER),
    "optional": {"type": "object", "properties": {"a": TEXT, "b": INTEGER}, "additionalProperties": False},
    "some required": {**closed(a=INTEGER, b=INTEGER, c=INTEGER), "required": ["b"]},
    "open object": {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
    "required but not described": {"type": "object", "required": ["z"], "maxProperties": 3},
    "additionalProperties": {"type": "object", "additionalProperties": INTEGER},
    "a map of lists": {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": "boolean"}},
    },
    "minProperties": {"type": "object", "additionalProperties": INTEGER, "minProperties": 1},
    "maxProperties": {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
    "patternProperties": {
        "type": "object",
        "patternProperties": {"^s_[a-z]{1,4}$": TEXT, "^i_[a-z]{1,4}$": INTEGER},
        "additionalProperties": False,
    },
    "patternProperties and properties": {
        "type": "object",
        "properties": {"id": INTEGER},
        "patternProperties": {"^x-": TEXT},
        "required": ["id"],
        "additionalProperties": False,
    },
    "nested": closed(
        person=closed(name=closed(first=TEXT, last=TEXT), born={"type": "string", "format": "date"})
    ),
    "anyOf": {"anyOf": [TEXT, INTEGER, closed(a={"type": "null"})]},
    "anyOf of objects": {
        "anyOf": [closed(kind={"const": "a"}, n=INTEGER), closed(kind={"const": "b"}, s=TEXT)]
    },
    "anyOf next to properties": {
        **closed(a=INTEGER, b={"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}),
    },
    "oneOf of types": {"oneOf": [TEXT, INTEGER]},
    "oneOf with a discriminator": {
        "oneOf": [closed(t={"const": "x"}, v=INTEGER), closed(t={"const": "y"}, v=TEXT)]
    },
    "allOf": {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 9}]},
    "allOf of objects": {
        "allOf": [
            {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]},
            {"type": "object", "properties": {"b": TEXT}, "required": ["b"]},
        ]
    },
    "allOf of patterns": {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "b$"}], "maxLength": 9},
    "ref": {"$defs": {"name": TEXT}, **closed(a={"$ref": "#/$defs/name"}, b={"$ref": "#/$defs/name"})},
    "ref with more": {"$defs": {"n": INTEGER}, **closed(a={"$ref": "#/$defs/n", "minimum": 5, "maximum": 6})},
    "ref in definitions": {"definitions": {"p": closed(x=NUMBER)}, "$ref": "#/definitions/p"},
    "ref to a property": closed(a={"enum": [1, 2]}, b={"$ref": "#/properties/a"}),
    "ref with odd names": {"$defs": {"a/b~c d": {"type": "boolean"}}, "$ref": "#/$defs/a~1b~0c%20d"},
    "required by a pattern": {
        "type": "object",
        "required": ["ax"],
        "patternProperties": {"^a": INTEGER},
        "additionalProperties": False,
    },
    "more of itself": {
        **closed(n=INTEGER, more={"type": "object", "additionalProperties": {"$ref": "#"}}),
        "required": ["n"],
    },
    "at least one of two, one of them itself": {
        **closed(n=INTEGER, more={"$ref": "#"}),
        "required": [],
        "minProperties": 1,
    },
    "a tree": {"$defs": {"tree": TREE}, "$ref": "#/$defs/tree"},
    "a linked list": LINKED,
    "annotations": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/thing",
        "title": "Thing",
        "description": "With all that binds nothing.",
        "examples": [1],
        "default": 2,
        "x-order": 3,
        "type": "integer",
        "readOnly": True,
    },
    "nothing that is unique": {"type": "array", "items": INTEGER, "uniqueItems": False},
    "names that need escapes": closed(**{'say "hi"': INTEGER, "tab\there": INTEGER, "naïve 東京": INTEGER}),
    "an event": closed(
        title={"type": "string", "minLength": 1, "maxLength": 40},
        start={"type": "string", "format": "date-time"},
        attendees={"type": "array", "items": {"type": "string", "format": "email"}, "maxItems": 3},
        location={"anyOf": [TEXT, {"type": "null"}]},
        priority={"type": "integer", "enum": [1, 2, 3]},
    ),
    "an order": closed(
        id={"type": "string", "pattern": "^ORD-[0-9]{6}$"},
        lines={
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": closed(
                sku={"type": "string", "pattern": "^[A-Z0-9]{4,8}$"},
                quantity={"type": "integer", "minimum": 1, "maximum": 99},
                price={"type": "number", "minimum": 0, "maximum": 1000},
            ),
        },
        status={"enum": ["new", "paid", "sent"]},
    ),
}
"""The enforced schemas. Each constrains something that the others do not."""

REFUSED: list[tuple[str, Schema, str]] = [
    # a word of the error, the schema, the place
    ("not", {"not": TEXT}, "not"),
    ("if", closed(a={"if": TEXT, "then": {"minLength": 2}}), "properties.a.if"),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ("uniqueItems", closed(tags={"type": "array", "uniqueItems": True}), "properties.tags.uniqueItems"),
    ("contains", {"type": "array", "contains": TEXT}, "contains"),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^a"}}, "propertyNames"),
    ("unevaluatedProperties", {"unevaluatedProperties": False}, "unevaluatedProperties"),
    ("$dynamicRef", {"$dynamicRef": "#node"}, "$dynamicRef"),
    ("look-around", closed(a={"type": "string", "pattern": "^(?!a)"}), "properties.a.pattern"),
    ("backreferences", {"anyOf": [INTEGER, {"type": "string", "pattern": r"(a)\1"}]}, "anyOf[1].pattern"),
    ("idn-email", {"type": "array", "items": {"type": "string", "format": "idn-email"}}, "items.format"),
    ("overlap", closed(a={"oneOf": [NUMBER, INTEGER]}), "properties.a.oneOf"),
    ("up to 9007199254740991", closed(n={"type": "integer", "maximum": 2**53}), "properties.n.maximum"),
    (
        "overlap",
        {"$defs": {"a": NUMBER, "b": INTEGER}, "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]},
        "oneOf",
    ),
    ("'#/$defs/…'", {"$ref": "https://example.com/schema"}, "$ref"),
    ("no schema", closed(a={"$ref": "#/$defs/nobody"}), "properties.a.$ref"),
    ("no schema", {"$ref": "#/properties", "properties": {"pattern": TEXT}}, "$ref"),
    ("without an end", {"$ref": "#/$defs/n", "$defs": {"n": closed(next={"$ref": "#/$defs/n"})}}, "$ref"),
    ("without an end", {"$ref": "#"}, "$ref"),
    ("without an end", {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#"}}, "$ref"),
    (
        "without an end",
        {"type": "object", "minProperties": 1, **closed(a={"$ref": "#"}), "required": []},
        "$ref",
    ),
    (
        "no schema",
        {"$ref": "#/properties/a/uniqueItems", "properties": {"a": {"uniqueItems": False}}},
        "$ref",
    ),
    ("must stand alone", closed(a={"$ref": "#", "minProperties": 1}), "properties.a.$ref"),
    ("maxLength", {"type": "string", "minLength": 5, "maxLength": 4}, "minLength"),
    ("greater", closed(n={"type": "integer", "minimum": 5, "maximum": 4}), "properties.n.minimum"),
    ("unsatisfiable", {"type": "array", "items": False, "minItems": 1}, "items"),
    ("not empty", {"enum": []}, "enum"),
    ("one of", {"type": "text"}, "type"),
    ("a number", {"type": "integer", "exclusiveMinimum": True}, "exclusiveMinimum"),
    ("whole number", {"type": "string", "maxLength": -1}, "maxLength"),
    ("up to", {"type": "string", "maxLength": 10**9}, "maxLength"),
    ("up to", {"const": 10**30}, "const"),
    ("a schema", {"properties": {"a": 1}}, "properties.a"),
    ("disjoint", {"type": "object", "patternProperties": {"^a": TEXT, "b$": INTEGER}}, "patternProperties"),
    ("more than 0", {"type": "number", "multipleOf": 0}, "multipleOf"),
]
