"""The fields of requests: type, bounds and text, from the pydantic models that read them.

Takes a model. Returns tables of the fields that are served, that are refused by name, and without effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from generate_pages.markdown import code, table
from gpt_oss_server.http.fields import Body, inner_bodies
from gpt_oss_server.http.unserved import WITHOUT_EFFECT

Schema = dict[str, Any]
_NAMES = {"array": "list", "boolean": "true or false"}
_HUGE = 2**31  # a bound beyond it is that of the machine


def served(model: type[Body]) -> str:
    """A row for each field, and for each field of its objects."""
    schema = model.model_json_schema()
    own = {name: field for name, field in schema["properties"].items() if name in model.__annotations__}
    ordered = {**schema, "properties": own | schema["properties"]}  # those of the API itself come first
    return table(("field", "type", "what it does"), _of_object(ordered, schema.get("$defs", {}), ""))


def refused(model: type[Body]) -> str:
    inner = {f"{outer}.": part.not_served for outer, part in inner_bodies(model).items()}
    rows = [
        (code(prefix + name), accepted.words or "none", advice)
        for prefix, not_served in {"": model.not_served, **inner}.items()
        for name, (accepted, advice) in sorted(not_served.items())
    ]
    return table(("field", "values that are accepted", "the error's advice"), rows)


def without_effect(model: type[Body]) -> str:
    names = sorted(WITHOUT_EFFECT - set(model.model_fields))
    return ", ".join(map(code, names)) + ".\n"


def parts(model: type[Body]) -> str:
    """All that an API's page states of a request's fields."""
    refusals = f"### Refused by name\n\nA 400 `unsupported_parameter`.\n\n{refused(model)}\n"
    return (
        f"### Served\n\n{served(model)}\n"
        + (refusals if model.not_served else "")
        + f"### Accepted without effect\n\n{without_effect(model)}\n"
        "[Unknown fields](../compatibility.md#unknown-fields) are ignored, warned of or refused.\n"
    )


def _of_object(schema: Schema, known: dict[str, Schema], prefix: str) -> Iterator[tuple[str, str, str]]:
    required = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        must = " (required)" if name in required else ""
        yield code(prefix + name), _type(field) + must, field["description"]
        for inner, marks in _objects(field, known):
            yield from _of_object(inner, known, f"{prefix}{name}{marks}.")


def _objects(field: Schema, known: dict[str, Schema]) -> Iterator[tuple[Schema, str]]:
    """The objects of a field that have fields of their own; those of a list are marked."""
    for one in (*field.get("anyOf", ()), field):
        if "$ref" in one:
            yield known[one["$ref"].rpartition("/")[2]], ""
        elif "$ref" in one.get("items", {}):
            yield known[one["items"]["$ref"].rpartition("/")[2]], "[]"


def _type(field: Schema) -> str:
    kinds = [_one(each) for each in field.get("anyOf", (field,)) if each.get("type") != "null"]
    return " or ".join(dict.fromkeys(kinds))


def _one(schema: Schema) -> str:
    if "$ref" in schema:
        return "object"
    if "const" in schema or "enum" in schema:
        return ", ".join(code(value) for value in schema.get("enum") or [schema["const"]])
    kind = schema["type"]
    if kind == "array":
        inner = _type(schema["items"]) if schema["items"] else ""
        return f"list of {inner}s" if inner in ("string", "object", "integer") else "list"
    return " ".join(filter(None, (_NAMES.get(kind, kind), _bounds(schema))))


def _bounds(schema: Schema) -> str:
    low, above, high = (_bound(schema, *keys) for keys in (("ge", "minimum"), ("gt",), ("le", "maximum")))
    low = f"from {low}" if low else f"above {above}" if above else ""
    return " ".join(filter(None, (low, f"to {high}" if high else "")))


def _bound(schema: Schema, *keys: str) -> str:
    return next((f"{schema[key]:,}" for key in keys if key in schema and abs(schema[key]) < _HUGE), "")
