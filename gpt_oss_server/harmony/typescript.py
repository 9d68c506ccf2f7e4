"""JSON schema to TypeScript, the notation in which the model reads the parameters of functions.

Takes a schema as the client sent it and returns a type. Where Harmony's own renderer is right, the text is
the same byte for byte, including its odd layout (a nested object closes at its content's indent), because the
model was trained on it. Where that renderer is lossy or wrong, this one writes more:

    anyOf, allOf, $ref, const, null, no type         any           → unions, intersections, the intended type
    enum of numbers, or without a type               number, any   → 1 | 2
    array of an enum or of a union                   "a" | "b"[]   → ("a" | "b")[]
    ["array", "null"], ["object", "null"]            array | null  → string[] | null
    additionalProperties as a schema                 lost          → [key: string]: T
    patternProperties, propertyNames                 lost          → the same, allowed keys in a comment
    items after prefixItems                          lost          → [T, ...U[]]
    bounds, lengths, patterns, formats               lost          → a comment after the property
    line breaks in comments, quotes in strings       broken text   → commented, escaped

Schemas are untrusted: recursion through $ref, depth and blow-up all end in `any`. It must not know tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.json_values import resolve

_DEEPEST = 32
_SCALARS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LIMITS = (*_BOUNDS, "minLength", "maxLength", "pattern", "format", "minItems", "maxItems", "uniqueItems")
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*", re.UNICODE)
# How much text expanded references may add to a prompt. Chains of references double at each step; a reference
# counts at least `_LEAST`, which bounds their number.
_MOST_TEXT, _LEAST = 400_000, 400
_LONGEST_CHAIN = 16
_LINE_BREAK = re.compile("\r\n|[\n\r\u2028\u2029]")  # of TypeScript

Schema = Mapping[str, Any]


def to_typescript(schema: Mapping[str, Any]) -> str:
    """The TypeScript type of a JSON schema. Never raises, whatever the schema holds."""
    return _Translation(schema).translate(schema, _Place()).text


@dataclass(frozen=True, slots=True)
class _Type:
    text: str
    compound: bool = False  # a union or an intersection: needs parentheses before [] and &

    @property
    def grouped(self) -> str:
        return f"({self.text})" if self.compound else self.text


_ANY = _Type("any")


@dataclass(frozen=True, slots=True)
class _Place:
    """A position in the schema during the translation."""

    indent: str = ""
    depth: int = 0
    inside: frozenset[str] = frozenset("#")  # the references being expanded

    def deeper(self, by: int = 0) -> _Place:
        return replace(self, indent=self.indent + " " * by, depth=self.depth + 1)


class _Translation:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = _MOST_TEXT

    def translate(self, schema: Any, place: _Place) -> _Type:
        if not isinstance(schema, Mapping):
            return _Type("never") if schema is False else _ANY
        if place.depth > _DEEPEST:
            return _ANY
        if isinstance(reference := schema.get("$ref"), str):
            return self._referenced(schema, reference, place)
        listed = _listed(schema)
        return self._combined(schema, place) if listed is None else listed

    def _referenced(self, schema: Schema, reference: str, place: _Place) -> _Type:
        if reference in place.inside:
            name = one_line(reference.rsplit("/", 1)[-1])  # has no slash, which could end the comment
            return _Type(f"any /* recursive: {name} */")
        target = self._followed(schema)
        if target is None:
            return _ANY
        inside = place.inside | {reference}
        translated = self.translate(target, replace(place, depth=place.depth + 1, inside=inside))
        self._left -= max(len(translated.text), _LEAST)
        return translated

    def _followed(self, schema: Schema) -> Schema | None:
        """The target of `$ref`, merged with the keywords next to it; None if it leads nowhere."""
        if self._left <= 0:
            return None
        reference = schema["$ref"]
        target = resolve(self._root, reference) if reference.startswith("#") else None
        if not isinstance(target, Mapping):
            return None
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}

    def _shown(self, schema: Any) -> Schema:
        """The schema with its references followed, for the comments above it."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(schema, Mapping):
                return {}
            if not isinstance(schema.get("$ref"), str):
                return schema
            schema = self._followed(schema)
        return {}

    def _combined(self, schema: Schema, place: _Place) -> _Type:
        """oneOf, anyOf and allOf, combined with the object next to them, if there is one."""
        parts = []
        if "properties" in schema or not any(_variants(schema, word) for word in ("oneOf", "anyOf", "allOf")):
            parts.append(self._plain(schema, place))
        for keyword in ("oneOf", "anyOf"):
            variants = _variants(schema, keyword)
            parts += [self._alternatives(variants, place, inline=keyword == "anyOf")] if variants else []
        parts += [self.translate(part, place.deeper()) for part in _variants(schema, "allOf")]
        known = [part for part in parts if part.text.strip() not in ("any", "| any")] or [_ANY]
        return known[0] if len(known) == 1 else _Type(" & ".join(part.grouped for part in known), True)

    def _alternatives(self, variants: Sequence[Any], place: _Place, *, inline: bool) -> _Type:
        types = [self._variant(variant, place) for variant in variants]
        if inline and _fit_one_line(variants, types):
            return _union(types)
        if all(one.text == "any" for one in types):
            return _ANY
        lines = (
            f"\n{place.indent} | {translated.text}{variant_comments(variant)}"
            for variant, translated in zip(variants, types, strict=True)
        )
        return _Type("".join(lines), True)

    def _variant(self, variant: Any, place: _Place) -> _Type:
        return _or_null(variant, self.translate(variant, place.deeper(3)))

    def _plain(self, schema: Schema, place: _Place) -> _Type:
        """Decides by `type`, or by keywords that only one type can have."""
        kind = schema.get("type")
        if isinstance(kind, list):
            kinds = [{**schema, "type": one} for one in kind if isinstance(one, str)]
            return _union([self._plain(one, place) for one in kinds]) if kinds else _ANY
        if isinstance(kind, str) and kind in _SCALARS:
            return _Type(_SCALARS[kind])
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, place)
        if kind == "array" or (kind is None and ("items" in schema or "prefixItems" in schema)):
            return self._array(schema, place)
        return _ANY

    def _array(self, schema: Schema, place: _Place) -> _Type:
        items = schema.get("items")
        first = schema.get("prefixItems", items if isinstance(items, list) else None)
        if isinstance(first, list):
            parts = [self.translate(one, place.deeper()).text for one in first]
            rest = schema.get("additionalItems") if first is items else items
            if isinstance(rest, Mapping):
                parts.append(f"...{self.translate(rest, place.deeper()).grouped}[]")
            return _Type(f"[{', '.join(parts)}]")
        if "items" not in schema:
            return _Type("Array<any>")
        return _Type(f"{_or_null(items, self.translate(items, place.deeper())).grouped}[]")

    def _object(self, schema: Schema, place: _Place) -> _Type:
        description = schema.get("description")
        above = with_comment_marks(place.indent, description) if isinstance(description, str) else ""
        required = schema.get("required")
        required = {name for name in required if isinstance(name, str)} if isinstance(required, list) else ()
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        lines = [self._property(str(key), part, key in required, place) for key, part in properties.items()]
        for part, keys in self._others(schema):
            note = f" // keys: {keys}" if keys else ""
            values = self.translate(part, place.deeper(4)).text
            lines.append(f"{place.indent}[key: string]: {values},{note}\n")
        return _Type(f"{above}{{\n{''.join(lines)}{place.indent}}}")

    def _others(self, schema: Schema) -> list[tuple[Any, str]]:
        """Properties without a name, each with the keys that it allows."""
        patterns = schema.get("patternProperties")
        patterns = patterns if isinstance(patterns, Mapping) else {}
        unnamed = [(part, f"pattern: {compact_json(pattern)}") for pattern, part in patterns.items()]
        others = schema.get("additionalProperties")
        names = self._shown(schema.get("propertyNames"))
        listed = _listed(names)
        keys = listed.text if listed is not None else ", ".join(_limits(names))
        if isinstance(others, Mapping) or (keys and others is not False):
            unnamed.append((others, keys))
        return unnamed

    def _property(self, key: str, part: Any, required: bool, place: _Place) -> str:
        schema = self._shown(part)
        name = (key if _IDENTIFIER.fullmatch(key) else compact_json(key)) + ("" if required else "?")
        variants = _variants(schema, "oneOf") or _variants(schema, "anyOf")
        if variants and "properties" not in schema:
            types = [self._variant(variant, place) for variant in variants]
            if "oneOf" in schema or not _fit_one_line(variants, types):
                return self._property_of_variants(name, schema, variants, types, place.indent)
        translated = _or_null(schema, self.translate(part, place.deeper(4)))
        notes = [f"default: {default}"] if (default := shown_default(schema)) is not None else []
        trailing = ", ".join([*notes, *_limits(schema)])
        comment = f" // {trailing}" if trailing else ""
        above = above_property(schema, place.indent)
        return f"{above}{place.indent}{name}: {translated.text},{comment}\n"

    def _property_of_variants(
        self, name: str, schema: Schema, variants: Sequence[Any], types: Sequence[_Type], indent: str
    ) -> str:
        """Writes one line for each variant of a union, followed by its comments."""
        described = schema.get("description")
        first = variants[0].get("description") if isinstance(variants[0], Mapping) else None
        shows = isinstance(described, str) and described != first
        lines = [above_property(schema, indent, describe=shows)]
        lines += [f"{indent}// {note}\n" for note in _limits(schema)]
        if (default := shown_default(schema)) is not None:
            lines.append(f"{indent}// default: {default}\n")
        lines.append(f"{indent}{name}:\n")
        for at, (variant, translated) in enumerate(zip(variants, types, strict=True)):
            known = {described} if at or not shows else {described, first}
            comments = variant_comments(variant, known, in_property=True)
            lines.append(f"{indent} | {translated.text}{comments}\n")
        return "".join([*lines, f"{indent},\n"])


def _listed(schema: Schema) -> _Type | None:
    """The type of a constant, or of listed values."""
    if "const" in schema:
        return _Type(compact_json(schema["const"]))
    values = schema.get("enum")
    if not isinstance(values, list) or not values:
        return None
    return _union([_Type(compact_json(value)) for value in values])


def _variants(schema: Schema, keyword: str) -> list[Any]:
    variants = schema.get(keyword)
    return variants if isinstance(variants, list) else []


def _fit_one_line(variants: Sequence[Any], types: Sequence[_Type]) -> bool:
    return not any(map(variant_comments, variants)) and not any("\n" in one.text for one in types)


def _union(types: Sequence[_Type]) -> _Type:
    texts = list(dict.fromkeys(one.text for one in types))  # integer and number are both number
    return _Type(" | ".join(texts), len(texts) > 1 or any(one.compound for one in types))


def _or_null(schema: Any, translated: _Type) -> _Type:
    nullable = isinstance(schema, Mapping) and schema.get("nullable") is True
    if not nullable or re.search(r"(^|\| )null$", translated.text):
        return translated
    return _Type(f"{translated.text} | null", True)


def _limits(schema: Any) -> list[str]:
    """Limits that a type cannot express, as notes; those of an array's items are marked."""
    if not isinstance(schema, Mapping):
        return []
    sources = [schema, *(one for one in _variants(schema, "anyOf") if isinstance(one, Mapping))]
    own = [limit for one in sources for limit in _own_limits(one)]
    items = schema.get("items")
    return [*own, *(f"items {limit}" for limit in _own_limits(items))] if isinstance(items, Mapping) else own


def _own_limits(schema: Schema) -> list[str]:
    return [f"{word}: {compact_json(schema[word])}" for word in _LIMITS if schema.get(word) is not None]


def above_property(schema: Mapping[str, Any], indent: str, *, describe: bool = True) -> str:
    """Title, description and examples, as comments above a property."""
    lines = []
    if isinstance(title := schema.get("title"), str):
        lines.append(f"{with_comment_marks(indent, title)}{indent}//\n")
    if describe and isinstance(description := schema.get("description"), str):
        lines.append(with_comment_marks(indent, description))
    if isinstance(examples := schema.get("examples"), list) and examples:
        lines.append(f"{indent}// Examples:\n")
        lines += [f"{indent}// - {compact_json(example)}\n" for example in examples]
    return "".join(lines)


def variant_comments(variant: Any, known: Set[Any] = frozenset(), *, in_property: bool = False) -> str:
    """The comments after a variant of a union, except descriptions in `known`, which are already written.

    The library quotes the default of an enum within types, and does not in a property's own variants.
    """
    if not isinstance(variant, Mapping):
        return ""
    notes = []
    if isinstance(description := variant.get("description"), str) and description not in known:
        notes.append(one_line(description))
    default = shown_default(variant) if in_property else compact_json(variant.get("default"))
    if "default" in variant:
        notes.append(f"default: {default}")
    return f" // {' '.join(notes)}" if notes else ""


def shown_default(schema: Mapping[str, Any]) -> str | None:
    """The default as the library spells it: a member of an enum goes without quotes."""
    if "default" not in schema:
        return None
    default = schema["default"]
    if isinstance(default, str) and schema.get("enum"):
        return one_line(default)
    return compact_json(default)


def with_comment_marks(indent: str, text: str) -> str:
    return "".join(f"{indent}// {line}\n" for line in _LINE_BREAK.split(text))


def one_line(text: str) -> str:
    return " ".join(text.splitlines())


def compact_json(value: Any) -> str:
    """JSON without spaces, or an ellipsis if the value is too deep for the encoder."""
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return _LINE_BREAK.sub(lambda match: f"\\u{ord(match[0]):04x}", text)  # JSON leaves two as they are
    except (RecursionError, ValueError, TypeError):
        return "…"
