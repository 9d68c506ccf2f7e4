"""JSON schemas over every keyword that is enforced, in the style of public test suites."""

from typing import Any

Schema = dict[str, Any]


def text(**keywords: Any) -> Schema:
    return {"type": "string", **keywords}


def number(**keywords: Any) -> Schema:
    return {"type": "number", **keywords}


def integer(**keywords: Any) -> Schema:
    return {"type": "integer", **keywords}


def array(items: Any = None, **keywords: Any) -> Schema:
    return {"type": "array", **({} if items is None else {"items": items}), **keywords}


def opened(**properties: Any) -> Schema:
    """An object that may have these properties, and others."""
    return {"type": "object", "properties": properties}


def closed(**properties: Any) -> Schema:
    """An object with exactly these properties, all required."""
    return {**opened(**properties), "required": list(properties), "additionalProperties": False}


def mapping(values: Any, **keywords: Any) -> Schema:
    return {"type": "object", "additionalProperties": values, **keywords}


TEXT, NUMBER, INTEGER, BOOLEAN, NULL = text(), number(), integer(), {"type": "boolean"}, {"type": "null"}
OBJECT: Schema = {"type": "object"}
ITSELF: Schema = {"$ref": "#"}
TREE: Schema = closed(value=INTEGER, children=array({"$ref": "#/$defs/tree"}, maxItems=2))
LINKED: Schema = closed(name=TEXT, next={"anyOf": [{"$ref": "#"}, NULL]})
PATTERNS: Schema = {"^s_[a-z]{1,4}$": TEXT, "^i_[a-z]{1,4}$": INTEGER}
EVENT = closed(
    title=text(minLength=1, maxLength=40),
    start=text(format="date-time"),
    attendees=array(text(format="email"), maxItems=3),
    location={"anyOf": [TEXT, NULL]},
    priority=integer(enum=[1, 2, 3]),
)
LINE = closed(
    sku=text(pattern="^[A-Z0-9]{4,8}$"),
    quantity=integer(minimum=1, maximum=99),
    price=number(minimum=0, maximum=1000),
)
ORDER = closed(
    id=text(pattern="^ORD-[0-9]{6}$"),
    lines=array(LINE, minItems=1, maxItems=3),
    status={"enum": ["new", "paid", "sent"]},
)
ANNOTATIONS = integer(title="Thing", description="Binds nothing.", examples=[1], default=2, readOnly=True)
ANNOTATIONS |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://a.example/thing"}
ANNOTATIONS |= {"x-order": 3}
FORMATS = ["date", "time", "date-time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri"]

SCHEMAS: dict[str, Schema] = {
    "any": {},
    "any object": OBJECT,
    "any list": array(),
    "string": TEXT,
    "number": NUMBER,
    "integer": INTEGER,
    "boolean": BOOLEAN,
    "null": NULL,
    "types": {"type": ["string", "integer", "null"]},
    "enum of strings": {"enum": ["red", "green", "blue", "東京", 'a "quoted" one']},
    "enum of anything": {"enum": ["a", 1, 2.5, None, True, [1, "x"], {"k": "v"}]},
    "enum of a type": text(enum=["small", "large"]),
    "const": {"const": "only this"},
    "const object": {"const": {"a": [1, 2, {"b": None}]}},
    "minLength": text(minLength=5),
    "maxLength": text(maxLength=4),
    "length of wide characters": text(minLength=2, maxLength=2, pattern="^[東京🧠]*$"),
    "pattern": text(pattern="^[A-Z]{2}[0-9]{3}$"),
    "pattern anywhere": text(pattern="ab+c", maxLength=12),
    "pattern with choices": text(pattern="^(cat|dog)s?$"),
    "pattern of letters": text(pattern="^[a-zà-ÿ]{1,8}$"),
    "pattern with classes": text(pattern="^\\d{4}-\\w{1,5}\\s?$"),
    "pattern and length": text(pattern="^[a-z]+$", minLength=3, maxLength=6),
    "pattern with quotes": text(pattern='^"[a-c]"\\\\$'),
    **{name: text(format=name) for name in FORMATS},
    "an unknown format": text(format="colour", maxLength=5),
    "minimum": integer(minimum=10),
    "maximum": integer(maximum=-3),
    "range": integer(minimum=-5, maximum=117),
    "range of numbers": number(minimum=0.25, maximum=1.75),
    "exclusive": number(exclusiveMinimum=0, exclusiveMaximum=1),
    "exclusive integers": integer(exclusiveMinimum=3, exclusiveMaximum=6),
    "multipleOf": integer(multipleOf=7, minimum=1, maximum=500),
    "multipleOf a fraction": number(multipleOf=0.5, minimum=0, maximum=9),
    "items": array(INTEGER),
    "minItems": array({"enum": ["a", "b"]}, minItems=2),
    "maxItems": array(BOOLEAN, maxItems=3),
    "items of objects": array(closed(x=INTEGER, y=INTEGER), minItems=1, maxItems=3),
    "prefixItems": array(False, prefixItems=[TEXT, INTEGER], minItems=2),
    "prefixItems and more": array(NULL, prefixItems=[TEXT], minItems=1),
    "an empty list": array(False),
    "object": closed(name=TEXT, age=INTEGER),
    "optional": {**opened(a=TEXT, b=INTEGER), "additionalProperties": False},
    "some required": {**closed(a=INTEGER, b=INTEGER, c=INTEGER), "required": ["b"]},
    "open object": {**opened(a=INTEGER), "required": ["a"]},
    "required but not described": {"type": "object", "required": ["z"], "maxProperties": 3},
    "additionalProperties": mapping(INTEGER),
    "a map of lists": mapping(array(BOOLEAN)),
    "minProperties": mapping(INTEGER, minProperties=1),
    "maxProperties": mapping(BOOLEAN, maxProperties=2),
    "patternProperties": mapping(False, patternProperties=PATTERNS),
    "patternProperties and properties": {**closed(id=INTEGER), "patternProperties": {"^x-": TEXT}},
    "nested": closed(person=closed(name=closed(first=TEXT, last=TEXT), born=text(format="date"))),
    "anyOf": {"anyOf": [TEXT, INTEGER, closed(a=NULL)]},
    "anyOf of objects": {"anyOf": [closed(k={"const": "a"}, n=INTEGER), closed(k={"const": "b"}, s=TEXT)]},
    "anyOf next to properties": closed(a=INTEGER, b={"anyOf": [NULL, text(maxLength=3)]}),
    "oneOf of types": {"oneOf": [TEXT, INTEGER]},
    "oneOf by a constant": {"oneOf": [closed(t={"const": "x"}, v=INTEGER), closed(t={"const": "y"}, v=TEXT)]},
    "allOf": {"allOf": [integer(minimum=3), {"maximum": 9}]},
    "allOf of objects": {"allOf": [{**opened(a=INTEGER), "required": ["a"]}, {"required": ["b"]}]},
    "allOf of patterns": text(allOf=[{"pattern": "^a"}, {"pattern": "b$"}], maxLength=9),
    "ref": {"$defs": {"name": TEXT}, **closed(a={"$ref": "#/$defs/name"}, b={"$ref": "#/$defs/name"})},
    "ref with more": {"$defs": {"n": INTEGER}, **closed(a={"$ref": "#/$defs/n", "minimum": 5, "maximum": 6})},
    "ref in definitions": {"definitions": {"p": closed(x=NUMBER)}, "$ref": "#/definitions/p"},
    "ref to a property": closed(a={"enum": [1, 2]}, b={"$ref": "#/properties/a"}),
    "ref with odd names": {"$defs": {"a/b~c d": BOOLEAN}, "$ref": "#/$defs/a~1b~0c%20d"},
    "required by a pattern": mapping(False, required=["ax"], patternProperties={"^a": INTEGER}),
    "more of itself": {**closed(n=INTEGER, more=mapping({"$ref": "#"})), "required": ["n"]},
    "one of two, one of them itself": closed(n=INTEGER, more=ITSELF) | {"required": [], "minProperties": 1},
    "a tree": {"$defs": {"tree": TREE}, "$ref": "#/$defs/tree"},
    "a linked list": LINKED,
    "annotations": ANNOTATIONS,
    "nothing that is unique": array(INTEGER, uniqueItems=False),
    "names that need escapes": closed(**{'say "hi"': INTEGER, "tab\there": INTEGER, "naïve 東京": INTEGER}),
    "an event": EVENT,
    "an order": ORDER,
}
"""The enforced schemas. Each constrains something that the others do not."""

REFUSED: list[tuple[str, Schema, str]] = [
    # a word of the error, the schema, the place
    ("not", {"not": TEXT}, "not"),
    ("if", closed(a={"if": TEXT, "then": {"minLength": 2}}), "properties.a.if"),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ("uniqueItems", closed(tags=array(uniqueItems=True)), "properties.tags.uniqueItems"),
    ("contains", array(contains=TEXT), "contains"),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^a"}}, "propertyNames"),
    ("unevaluatedProperties", {"unevaluatedProperties": False}, "unevaluatedProperties"),
    ("$dynamicRef", {"$dynamicRef": "#node"}, "$dynamicRef"),
    ("look-around", closed(a=text(pattern="^(?!a)")), "properties.a.pattern"),
    ("backreferences", {"anyOf": [INTEGER, text(pattern=r"(a)\1")]}, "anyOf[1].pattern"),
    ("idn-email", array(text(format="idn-email")), "items.format"),
    ("overlap", closed(a={"oneOf": [NUMBER, INTEGER]}), "properties.a.oneOf"),
    ("up to 9007199254740991", closed(n=integer(maximum=2**53)), "properties.n.maximum"),
    ("overlap", {"$defs": {"a": NUMBER}, "oneOf": [{"$ref": "#/$defs/a"}, INTEGER]}, "oneOf"),
    ("'#/$defs/…'", {"$ref": "https://example.com/schema"}, "$ref"),
    ("no schema", closed(a={"$ref": "#/$defs/nobody"}), "properties.a.$ref"),
    ("no schema", {"$ref": "#/properties", "properties": {"pattern": TEXT}}, "$ref"),
    (
        "no schema",
        {"$ref": "#/properties/a/uniqueItems", "properties": {"a": array(uniqueItems=False)}},
        "$ref",
    ),
    ("must stand alone", closed(a={"$ref": "#", "minProperties": 1}), "properties.a.$ref"),
    ("maxLength", text(minLength=5, maxLength=4), "minLength"),
    ("greater", closed(n=integer(minimum=5, maximum=4)), "properties.n.minimum"),
    ("unsatisfiable", array(False, minItems=1), "items"),
    ("not empty", {"enum": []}, "enum"),
    ("one of", {"type": "text"}, "type"),
    ("a number", integer(exclusiveMinimum=True), "exclusiveMinimum"),
    ("whole number", text(maxLength=-1), "maxLength"),
    ("up to", text(maxLength=10**9), "maxLength"),
    ("up to", {"const": 10**30}, "const"),
    ("a schema", {"properties": {"a": 1}}, "properties.a"),
    ("disjoint", {"type": "object", "patternProperties": {"^a": TEXT, "b$": INTEGER}}, "patternProperties"),
    ("more than 0", number(multipleOf=0), "multipleOf"),
]
