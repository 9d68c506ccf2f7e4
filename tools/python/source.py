"""Converts the arguments of a call to Python source, and repairs known slips.

The declaration asks for bare source. A JSON object with the source as its only value (`{"code": "…"}`), and a
Markdown fence around everything, are unwrapped; anything else is source, unchanged, for Python itself to
judge.
"""

from __future__ import annotations

import json
import re

_CODE_KEYS = frozenset({"code", "source", "python", "script", "input"})
_FENCE = re.compile(
    r"\A\s*```[ \t]*(?:python3?|py|ipython|tool_code)?[ \t]*\r?\n(?P<source>.*?)(?:\r?\n)?(?:```)?\s*\Z",
    re.DOTALL | re.IGNORECASE,
)


def read_source(arguments: str) -> str:
    return _without_fence(_out_of_json(arguments))


def _out_of_json(arguments: str) -> str:
    if not arguments.lstrip().startswith("{"):
        return arguments
    try:
        # Not strict, to accept raw line breaks in the string; no Python source with such a key has them.
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return arguments
    if isinstance(value, dict) and len(value) == 1:
        ((key, source),) = value.items()
        if key in _CODE_KEYS and isinstance(source, str):
            return source
    return arguments


def _without_fence(text: str) -> str:
    match = _FENCE.match(text)
    if match is None or "```" in match["source"]:
        return text
    return match["source"]
