"""Prepares a client's JSON schema for enforcement, or refuses it with the place of the error.

llguidance itself decides what `schema_support.py` cannot (is this pattern regular? do these cases overlap?).
Its errors have no place; this module finds it by testing the schema's parts.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_oss_server.constraints.grammar import schema_json
from gpt_oss_server.constraints.guide import outline
from gpt_oss_server.constraints.matcher import Grammars, first_line_and_cause
from gpt_oss_server.constraints.schema_support import SchemaMalformed, SchemaRefused, read_schema

_SEARCH_SECONDS = 0.5  # an error without its place is better than a long search
_HOME = "x-whole"


def enforceable(grammars: Grammars, given: Any) -> dict[str, Any]:
    """The schema for enforcement; raises `SchemaRefused`."""
    clean = read_schema(given)
    problem = _problem(grammars, clean)
    if problem is not None:
        raise SchemaRefused(*(_culprit(grammars, clean) or ("", problem)))
    return clean


def as_far_as_enforceable(grammars: Grammars, given: Any) -> dict[str, Any]:
    """The same, without what cannot be enforced; raises `SchemaMalformed` if `given` is not a schema. Of one
    with a part that only llguidance refuses, names, types and listed values are left."""
    try:
        clean = read_schema(given, lenient=True)
        for loose in (clean, outline(clean, closes=False)):
            if _problem(grammars, loose) is None:
                return loose
    except SchemaRefused as refused:
        if isinstance(refused, SchemaMalformed):
            raise
    return {"type": "object"} if "properties" in given or given.get("type") == "object" else {}


def _problem(grammars: Grammars, schema: Mapping[str, Any]) -> str | None:
    problem = grammars.problem(f"start: %json {schema_json(schema)}\n")
    return None if problem is None else _readable(problem)


def _culprit(grammars: Grammars, whole: dict[str, Any]) -> tuple[str, str] | None:
    """The deepest part that is refused on its own, and the reason."""
    until = time.monotonic() + _SEARCH_SECONDS
    moved = _moved(whole)
    for at, part in _parts(moved, ""):
        if time.monotonic() > until:
            return None
        if (problem := _problem(grammars, {**part, _HOME: moved})) is not None:
            keyword = _keyword(grammars, part, moved)
            return (f"{at}.{keyword}" if at and keyword else at or keyword), problem
    return None


def _keyword(grammars: Grammars, part: dict[str, Any], home: dict[str, Any]) -> str:
    """The keyword whose removal makes the part acceptable; empty if no single one does."""
    for keyword in sorted(part, key="type".__eq__):  # a type is seldom the cause
        rest = {name: value for name, value in part.items() if name != keyword}
        if _problem(grammars, {**rest, _HOME: home}) is None:
            return keyword
    return ""


def _parts(schema: Any, at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema's parts and their places, inner parts first."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        inner = f"{at}.{keyword}" if at else keyword
        if keyword in ("properties", "patternProperties", "$defs", "definitions"):
            for name, each in value.items():
                yield from _parts(each, f"{inner}.{name}")
        elif keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for index, each in enumerate(value):
                yield from _parts(each, f"{inner}[{index}]")
        elif keyword in ("items", "additionalProperties"):
            yield from _parts(value, inner)
    yield at, schema


def _moved(value: Any) -> Any:
    """A copy whose references hold when it stands under `_HOME`."""
    if isinstance(value, list):
        return list(map(_moved, value))
    if not isinstance(value, dict):
        return value
    moved = {key: _moved(each) for key, each in value.items()}
    if isinstance(moved.get("$ref"), str):
        moved["$ref"] = moved["$ref"].replace("#", f"#/{_HOME}", 1)
    return moved


def _readable(problem: str) -> str:
    if "coerce_one_of" in problem:
        return "the cases of 'oneOf' may overlap; distinguish them by a const, or use anyOf"
    if "circular references with sibling keys" in problem:
        return "a reference that leads back to itself must stand alone: move its siblings to its target"
    first, cause = first_line_and_cause(problem)
    reason = (cause or first).rpartition("failed to compile JSON schema: ")[2]
    return reason.removeprefix("Unsatisfiable schema: ")[:300]
