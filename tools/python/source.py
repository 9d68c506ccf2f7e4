"""From what the model wrote to Python source: the slips that are understood.

In: the arguments of a call. Out: source. The model is told to send bare source. It sometimes sends a JSON
object with the source as its only meaning (`{"code": "…"}`), or puts a Markdown fence around the whole.
Both are taken for what they mean; all else is source as it stands, for Python itself to judge. A fence is
never valid Python; an object with exactly such a key is valid Python, but an expression with no use.
"""

from __future__ import annotations

import json
import re

_CODE_KEYS = frozenset({"code", "source", "python", "script", "input"})
_FENCE = re.compile(
    r"\A\s*```[ \t]*(?:python3?|py|ipython|tool_code)?[ \t]*\r?\n(?P<source>.*?)(?:\r?\n)?(?:```)?\s*\Z",
    re.DOTALL | re.IGNORECASE,
)


def source_of(arguments: str) -> str:
    """The source that the arguments of a call mean."""
    return _without_fence(_out_of_json(arguments))


def _out_of_json(arguments: str) -> str:
    if not arguments.lstrip().startswith("{"):
        return arguments
    try:
        # Not strict: line breaks may stand in it as they are, which no Python source with such a key has.
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
