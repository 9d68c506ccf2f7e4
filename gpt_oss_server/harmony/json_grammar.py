"""A client's JSON schema, made ready to bind an answer; or the 400's sentence, with the place.

In goes a schema as it was sent, out comes one that llguidance enforces and that some finite answer fits. What
`schema_support.py` cannot know (is this pattern regular? do these cases overlap?) llguidance says itself; its
sentence comes without a place, which is found by asking it about the schema's parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from gpt_oss_server.harmony.finite import has_finite_value
from gpt_oss_server.harmony.grammar import schema_json
from gpt_oss_server.harmony.matcher import Grammars
from gpt_oss_server.harmony.schema_support import SchemaRefused, read_schema

_MOST_PARTS = 300
_HOME = "x-whole"


def enforceable(grammars: Grammars, given: Any) -> dict[str, Any]:
    """Raises `SchemaRefused`."""
    clean = read_schema(given)
    problem = _problem(grammars, clean)
    if problem is None and not has_finite_value(clean, clean):
        raise SchemaRefused("$ref", "it refers to itself without an end, so that no answer fits")
    if problem is None:
        return clean
    raise SchemaRefused(*(_culprit(grammars, clean) or ("", problem)))


def _problem(grammars: Grammars, schema: Mapping[str, Any]) -> str | None:
    found = grammars.problem(f"start: %json {schema_json(schema)}\n")
    return None if found is None else _readable(found)


def _culprit(grammars: Grammars, whole: dict[str, Any]) -> tuple[str, str] | None:
    """The deepest part that is refused by itself, and why; parts come before what holds them."""
    home = _moved(whole)
    for count, (at, pointer) in enumerate(_parts(whole, "", "#")):
        if count >= _MOST_PARTS:
            return None
        part = {"$ref": pointer.replace("#", f"#/{_HOME}", 1), _HOME: home}
        if (problem := _problem(grammars, part)) is not None:
            return at, problem
    return None


def _parts(schema: Any, at: str, pointer: str) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        inner_at, inner = f"{at}.{keyword}" if at else keyword, f"{pointer}/{keyword}"
        if keyword in ("properties", "patternProperties", "$defs", "definitions"):
            for name, each in value.items():
                yield from _parts(each, f"{inner_at}.{name}", f"{inner}/{_escaped(name)}")
        elif keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for index, each in enumerate(value):
                yield from _parts(each, f"{inner_at}[{index}]", f"{inner}/{index}")
        elif keyword in ("items", "additionalProperties"):
            yield from _parts(value, inner_at, inner)
    yield at, pointer


def _moved(value: Any) -> Any:
    """A copy whose references hold where it is put under `_HOME`."""
    if isinstance(value, list):
        return [_moved(each) for each in value]
    if not isinstance(value, dict):
        return value
    moved = {key: _moved(each) for key, each in value.items()}
    if isinstance(moved.get("$ref"), str):
        moved["$ref"] = moved["$ref"].replace("#", f"#/{_HOME}", 1)
    return moved


def _escaped(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"))


def _readable(problem: str) -> str:
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    cause = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), lines[0])
    if "coerce_one_of" in problem:
        return "the cases of 'oneOf' may overlap; tell them apart by a const, or use anyOf"
    return cause[:300]
