"""JSON schema to TypeScript: like the library where that is right, more where it is lossy, always safe."""

import re
import time
from typing import Any

import openai_harmony
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.typescript import to_typescript
from tests.doubles.harmony.decoding import rendered
from tests.doubles.harmony.schemas import NULL, NUMBER, TEXT, array, integer, mapping, number, opened, text

KINDS = ("string", "number", "boolean", "null")
words = st.text("abcdefgh XYZ-_.,0123456789äß東", min_size=1, max_size=12).map(str.strip).filter(bool)
names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True)


def described(schema: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    notes = st.fixed_dictionaries({}, optional={"description": words, "title": words})
    return st.builds(lambda base, note: {**base, **note}, schema, notes)


scalars = st.one_of(
    st.sampled_from(["string", "number", "integer", "boolean"]).map(lambda kind: {"type": kind}),
    words.map(lambda default: text(default=default)),
    st.integers(-5, 500).map(lambda default: integer(default=default)),
    st.booleans().map(lambda default: {"type": "boolean", "default": default}),
    st.sampled_from([0.5, 1.0, -2.25]).map(lambda default: number(default=default)),
    st.lists(words, min_size=1, max_size=3, unique=True).map(lambda values: text(enum=values)),
    st.just(text(enum=["on", "off"], default="off")),
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True).map(lambda kinds: {"type": kinds}),
    st.just(text(nullable=True)),
    st.lists(words, max_size=2).map(lambda examples: text(examples=examples)),
)
arrays = st.just(array()) | st.sampled_from(KINDS[:3]).map(lambda kind: array({"type": kind}))


def objects(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda properties, keep: {
            "type": "object",
            "properties": properties,
            "required": [name for place, name in enumerate(properties) if place % 2 == keep],
        },
        st.dictionaries(names, parts, max_size=4),
        st.integers(0, 1),
    )


def nestings(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    unions = st.lists(parts, min_size=1, max_size=3).map(lambda variants: {"oneOf": variants})
    return described(objects(parts) | unions)


nested = st.recursive(described(scalars | arrays), nestings, max_leaves=12)


def as_the_library_has_it(schema: dict[str, Any]) -> str:
    tool = openai_harmony.ToolDescription(name="f", description="", parameters=schema)
    content = openai_harmony.DeveloperContent.new().with_function_tools([tool])
    message = openai_harmony.Message.from_role_and_content(openai_harmony.Role.DEVELOPER, content)
    prompt = load_encoding().decode(rendered(message))
    return prompt.split("type f = (_: ", 1)[1].rsplit(") => any;", 1)[0]


@settings(max_examples=100)
@given(objects(nested))
def test_simple_schemas_read_as_the_library_writes_them(schema: dict[str, Any]) -> None:
    assert to_typescript(schema) == as_the_library_has_it(schema)


MAP = "{{\n[key: string]: {}\n}}"
NULLABLE_TEXT = {"type": ["string", "null"]}
BETTER: list[tuple[str, Any, str]] = [
    ("anyOf", {"anyOf": [TEXT, NULL]}, "string | null"),
    ("const", {"const": "a\nb"}, '"a\\nb"'),
    ("const object", {"const": {"a": [1, "é"]}}, '{"a":[1,"é"]}'),
    ("integer enum", integer(enum=[1, 2]), "1 | 2"),
    ("untyped enum", {"enum": ["a", 1, None]}, '"a" | 1 | null'),
    ("enum with quotes", text(enum=['a"b']), '"a\\"b"'),
    ("array of enum", array({"enum": ["a", "b"]}), '("a" | "b")[]'),
    ("array of union", array(NULLABLE_TEXT), "(string | null)[]"),
    ("array of nullable", array(text(nullable=True)), "(string | null)[]"),
    ("array or null", {"type": ["array", "null"], "items": TEXT}, "string[] | null"),
    ("tuple", array(prefixItems=[TEXT, NUMBER]), "[string, number]"),
    ("type null", NULL, "null"),
    ("untyped object", {"properties": {"a": TEXT}}, "{\na?: string,\n}"),
    ("map", mapping(NUMBER), MAP.format("number,")),
    (
        "map of patterns",
        mapping(False, patternProperties={"^a": NUMBER}),
        MAP.format('number, // keys: pattern: "^a"'),
    ),
    (
        "map of an enum's names",
        mapping(NUMBER, propertyNames={"$ref": "#/$defs/C"}, **{"$defs": {"C": text(enum=["red", "blue"])}}),
        MAP.format('number, // keys: "red" | "blue"'),
    ),
    (
        "map of long names",
        {"type": "object", "propertyNames": {"minLength": 2}},
        MAP.format("any, // keys: minLength: 2"),
    ),
    ("Zod's record", mapping(NUMBER, propertyNames=TEXT), MAP.format("number,")),
    ("tuple and more", array(NULLABLE_TEXT, prefixItems=[TEXT]), "[string, ...(string | null)[]]"),
    ("tuple and more of draft 7", array([TEXT], additionalItems=NUMBER), "[string, ...number[]]"),
    ("odd key", opened(**{"a-b": {}, "a\n": {}}), '{\n"a-b"?: any,\n"a\\n"?: any,\n}'),
    ("ref", {"$ref": "#/$defs/a~1b", "$defs": {"a/b": TEXT}}, "string"),
    ("ref to nothing", {"$ref": "#/$defs/none"}, "any"),
    ("ref abroad", {"$ref": "https://example.com/schema"}, "any"),
    ("allOf of one", {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": TEXT}}, "string"),
    ("allOf", {"allOf": [opened(a={}), {"anyOf": [TEXT, NULL]}]}, "{\na?: any,\n} & (string | null)"),
    ("object next to oneOf", {**opened(a={}), "oneOf": [{"required": ["a"]}]}, "{\na?: any,\n}"),
    (
        "bounds",
        opened(n=integer(default=3, minimum=1, maximum=9)),
        "{\nn?: number, // default: 3, minimum: 1, maximum: 9\n}",
    ),
    (
        "bounds of variants",
        opened(n={"anyOf": [text(format="date"), NULL]}),
        '{\nn?: string | null, // format: "date"\n}',
    ),
    ("bounds of items", opened(n=array(text(maxLength=3))), "{\nn?: string[], // items maxLength: 3\n}"),
    ("lines in a description", opened(n=text(description="one\ntwo")), "{\n// one\n// two\nn?: string,\n}"),
    (
        "described variants of anyOf take a line each",
        opened(n={"anyOf": [text(description="d"), NULL]}),
        "{\nn?:\n | string // d\n | null\n,\n}",
    ),
    (
        "description of a reference's target",
        {**opened(n={"$ref": "#/$defs/a"}), "$defs": {"a": text(description="why")}},
        "{\n// why\nn?: string,\n}",
    ),
    (
        "recursion",
        opened(next={"$ref": "#"}, x=array({"$ref": "#"})),
        "{\nnext?: any /* recursive: # */,\nx?: any /* recursive: # */[],\n}",
    ),
    ("true", True, "any"),
    ("false", False, "never"),
    ("not a schema", 3, "any"),
]


@pytest.mark.parametrize(("what", "schema", "expected"), BETTER, ids=[what for what, *_ in BETTER])
def test_what_the_library_loses_is_written(what: str, schema: Any, expected: str) -> None:
    assert to_typescript(schema) == expected, what


def test_depth_ends_in_any() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}, "default": schema}
    assert "any" in to_typescript(schema)


def test_references_that_double_at_each_step_end_in_any() -> None:
    refs = [{"$ref": f"#/$defs/s{number}"} for number in range(31)]
    steps = {f"s{number}": opened(a=refs[number + 1], b=refs[number + 1]) for number in range(30)}
    began = time.process_time()
    assert len(to_typescript({"$ref": "#/$defs/s0", "$defs": steps})) < 2_000_000
    assert time.process_time() - began < 5


KEYWORDS = (
    "type properties items prefixItems oneOf anyOf allOf enum const $ref required description default title "
    "examples nullable additionalProperties patternProperties propertyNames additionalItems minimum"
)

VALUES = ("object", "array", "string", "#", "#/properties/a", "#/oneOf/0")


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keyword = st.sampled_from(KEYWORDS.split())
    return st.lists(inner, max_size=3) | st.dictionaries(keyword, inner | st.sampled_from(VALUES), max_size=5)


scalar = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
anything = st.recursive(scalar, _schemas, max_leaves=30)


@settings(max_examples=200)
@given(anything)
def test_no_schema_raises(schema: Any) -> None:
    assert isinstance(to_typescript(schema), str)


LITERALS = ("const", "enum")
LINE_BREAKS = ("\n", "\r\n", "\r", "\u2028", "\u2029")  # TypeScript's


def with_texts(schema: Any, shown: str) -> Any:
    """The schema with the text wherever a comment may show it."""
    if isinstance(schema, list):
        return [with_texts(part, shown) for part in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: part if key in LITERALS else with_texts(part, shown) for key, part in schema.items()}
    return inner | {"title": shown, "description": shown, "default": shown, "examples": [shown]}


@settings(max_examples=100)
@given(anything, st.sampled_from(LINE_BREAKS))
def test_no_text_breaks_out_of_a_comment(schema: Any, line_break: str) -> None:
    written = to_typescript(with_texts({"properties": {"a": schema}}, f"*/{line_break}outside"))
    for line in re.split("|".join(LINE_BREAKS), written):
        before, outside, _ = line.partition("outside")
        assert not outside or "//" in before, written
    assert "outside" in written
