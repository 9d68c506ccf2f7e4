"""Whether any finite JSON fits a schema: one that demands itself again and again can never be answered.

In goes a schema as `schema_support.py` leaves it. The grammar would accept such a schema and never let the
answer end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpt_oss_server.constraints.schema_spellings import resolve


def has_finite_value(schema: Any, root: Mapping[str, Any]) -> bool:
    """References count as without a value until one is found: rounds until nothing changes."""
    judge = _Judge(root)
    judge.has_value(schema)
    for reference in judge.met:  # the list grows meanwhile
        judge.has_value(resolve(root, reference))
    while True:
        before = len(judge.found)
        # The last that was met first: in a chain of references that is its end, so that one round will do.
        for reference in reversed(judge.met):
            if reference not in judge.found and judge.has_value(resolve(root, reference)):
                judge.found.add(reference)
        if len(judge.found) == before:
            return judge.has_value(schema)


class _Judge:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.met: list[str] = []  # references, in order
        self._known: set[str] = set()
        self.found: set[str] = set()  # those with a value

    def has_value(self, schema: Any) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        if "const" in schema or "enum" in schema:
            return True
        return self._reference(schema) and self._cases(schema) and self._types(schema)

    def _reference(self, schema: Mapping[str, Any]) -> bool:
        reference = schema.get("$ref")
        if reference is None:
            return True
        if reference not in self._known:
            self._known.add(reference)
            self.met.append(reference)
        return reference in self.found

    def _each(self, schemas: Iterable[Any]) -> list[bool]:
        """Of every one, without a short cut: what each refers to must be known in the next round."""
        return [self.has_value(each) for each in schemas]

    def _cases(self, schema: Mapping[str, Any]) -> bool:
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and not any(self._each(schema[keyword])):
                return False
        return all(self._each(schema.get("allOf", ())))

    def _types(self, schema: Mapping[str, Any]) -> bool:
        given = schema.get("type")
        types = {given} if isinstance(given, str) else set(given or ())
        if not types or types - {"object", "array"}:
            return True
        fitting = [self._one_type(schema, name) for name in types]
        return any(fitting)

    def _one_type(self, schema: Mapping[str, Any], name: str) -> bool:
        if name == "object":
            return self._object(schema)
        first = schema.get("prefixItems", [])[: schema.get("minItems", 0)]
        more = [schema.get("items", True)] if schema.get("minItems", 0) > len(first) else []
        return all(self._each([*first, *more]))

    def _object(self, schema: Mapping[str, Any]) -> bool:
        """Of its own properties those that must be there, and of any others as many as must be."""
        properties, required = schema.get("properties", {}), schema.get("required", ())
        own = {key: self.has_value(each) for key, each in properties.items()}
        # Which pattern a name matches is not known here: one that has a value will do.
        others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", True)]
        has_others = any(self._each(others))
        optional = sum(has for key, has in own.items() if key not in required)
        enough = has_others or len(required) + optional >= schema.get("minProperties", 0)
        return enough and all(own.get(key, has_others) for key in required)
