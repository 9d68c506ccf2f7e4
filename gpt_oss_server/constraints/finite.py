"""Checks that some finite JSON fits a schema; no answer can end if a schema requires itself without end."""

from collections.abc import Iterable, Mapping
from typing import Any

from gpt_oss_server.json_values import resolve


def has_finite_value(schema: Any, root: Mapping[str, Any]) -> bool:
    """Whether some finite value fits. A reference counts as without a value until its target has one."""
    judge = _Judge(root)
    judge.has_value(schema)
    judge.look(judge.references)  # this list grows meanwhile
    while judge.found:
        found, judge.found = judge.found, []
        judge.look(set[str]().union(*(judge.waiting[reference] for reference in found)))
    return judge.has_value(schema)


class _Judge:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.references: list[str] = []  # in the order in which they were met
        self.waiting: dict[str, set[str]] = {}  # reference → those whose targets may depend on it
        self.found: list[str] = []  # references with a value, since the last look at those that wait for them
        self._finite: set[str] = set()
        self._at: str | None = None  # the reference that is looked at

    def look(self, references: Iterable[str]) -> None:
        for reference in references:
            self._at = reference
            if reference not in self._finite and self.has_value(resolve(self._root, reference)):
                self._finite.add(reference)
                self.found.append(reference)

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
        if reference not in self.waiting:
            self.waiting[reference] = set()
            self.references.append(reference)
        if self._at is not None:
            self.waiting[reference].add(self._at)
        return reference in self._finite

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
        properties, required = schema.get("properties", {}), set(schema.get("required", ()))
        own = {key: self.has_value(value) for key, value in properties.items()}
        # It is not known here which pattern a name matches: any pattern with a value is enough.
        others = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties", True)]
        has_others = any(self._all(others))
        optional = sum(has for key, has in own.items() if key not in required)
        enough = has_others or len(required) + optional >= schema.get("minProperties", 0)
        return enough and all(own.get(key, has_others) for key in required)
