"""Checks that some finite JSON fits a schema; no answer can end if a schema requires itself without end."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpt_oss_server.json_values import resolve


def has_finite_value(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether some finite value fits. A reference counts as without a value until a round finds one."""
    judge = _Judge(root)
    judge.has_value(schema)
    for reference in judge.references:  # this list grows during the loop
        judge.has_value(resolve(root, reference))
    while True:
        before = len(judge.finite)
        # In reverse order, because a chain of references then needs a single round: its end was met last.
        for reference in reversed(judge.references):
            if reference not in judge.finite and judge.has_value(resolve(root, reference)):
                judge.finite.add(reference)
        if len(judge.finite) == before:
            return judge.has_value(schema)


class _Judge:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.references: list[str] = []  # in the order in which they were met
        self._known: set[str] = set()
        self.finite: set[str] = set()  # those with a value

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
            self.references.append(reference)
        return reference in self.finite

    def _all(self, schemas: Iterable[Any]) -> list[bool]:
        """Checks every schema, without short-circuiting: the next round must know all their references."""
        return list(map(self.has_value, schemas))

    def _cases(self, schema: Mapping[str, Any]) -> bool:
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema and not any(self._all(schema[keyword])):
                return False
        return all(self._all(schema.get("allOf", ())))

    def _types(self, schema: Mapping[str, Any]) -> bool:
        stated = schema.get("type")
        types = {stated} if isinstance(stated, str) else set(stated or ())
        if not types or types - {"object", "array"}:
            return True
        fitting = [self._object(schema) if name == "object" else self._array(schema) for name in types]
        return any(fitting)

    def _array(self, schema: Mapping[str, Any]) -> bool:
        first = schema.get("prefixItems", [])[: schema.get("minItems", 0)]
        more = [schema.get("items", True)] if schema.get("minItems", 0) > len(first) else []
        return all(self._all([*first, *more]))

    def _object(self, schema: Mapping[str, Any]) -> bool:
        """Counts the required properties, and optional ones up to `minProperties`."""
        properties, required = schema.get("properties", {}), schema.get("required", ())
        own = {key: self.has_value(value) for key, value in properties.items()}
        # It is not known here which pattern a name matches: any pattern with a value is enough.
        others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", True)]
        has_others = any(self._all(others))
        optional = sum(has for key, has in own.items() if key not in required)
        enough = has_others or len(required) + optional >= schema.get("minProperties", 0)
        return enough and all(own.get(key, has_others) for key in required)
