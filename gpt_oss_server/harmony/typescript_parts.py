"""The parts of a schema's translation that are not types: references, comments, literals.

Text from the schema can never end a comment or a string early. It must not know how types are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from typing import Any

from gpt_oss_server.json_values import resolve

# How much text expanded references may add to a prompt. Chains of references double at each step; a reference
# counts at least `_LEAST`, which bounds their number.
_MOST_TEXT = 400_000
_LEAST = 400
_LONGEST_CHAIN = 16
_LINE_BREAK = re.compile("\r\n|[\n\r\u2028\u2029]")  # of TypeScript


class References:
    """Local references of one schema, expanded until the limit on text is reached."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MOST_TEXT

    def spend(self, length: int) -> None:
        self._left -= max(length, _LEAST)

    def follow(self, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The target of `$ref`, merged with the keywords next to it; None if it leads nowhere."""
        if self._left <= 0:
            return None
        reference = schema["$ref"]
        target = resolve(self._root, reference) if reference.startswith("#") else None
        if not isinstance(target, Mapping):
            return None
        return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}

    def shown(self, schema: Any) -> Mapping[str, Any]:
        """The schema with its references followed, for the comments above it."""
        for _ in range(_LONGEST_CHAIN):
            if not isinstance(schema, Mapping):
                return {}
            if not isinstance(schema.get("$ref"), str):
                return schema
            schema = self.follow(schema)
        return {}


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
