"""Recipient-safe words (letters, digits, `_` and `-`) for names that MCP servers and clients choose. Pure."""

import re
from collections.abc import Collection, Iterable

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 64

RESERVED_NAMESPACES = frozenset(
    {"functions", "browser", "python", "container", "multi_tool_use"}
    | {"assistant", "user", "system", "developer", "tool", "all", "none"}
)
"""Words with another meaning as a recipient: built-in tools, the client's functions, and roles."""


def safe_names(names: Iterable[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """The word of each distinct name. Valid names keep theirs, whatever the other names become."""
    different = list(dict.fromkeys(names))
    words = {name: name for name in different if _word(name) == name and name not in taken}
    used = {*words, *taken}
    for name in different:
        if name not in words:
            word, number = _word(name), 1
            while word in used:
                number += 1
                word = f"{_word(name)[: _LONGEST - 8]}_{number}"
            words[name] = word
            used.add(word)
    return words


def safe_namespace(label: str) -> str:
    """The namespace of one server's tools, distinct from every built-in."""
    word = _word(label)
    return f"mcp_{word}"[:_LONGEST] if word.lower() in RESERVED_NAMESPACES else word


def _word(name: str) -> str:
    return _UNFIT.sub("_", name)[:_LONGEST] or "_"
