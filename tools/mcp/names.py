"""Recipient-safe words for names that MCP servers and clients choose.

Takes any names. Returns words (letters, digits, `_` and `-`; no dot, which separates the label from the
tool), and maps words back to names. Reports each name that had to change. Pure; it must not know connections.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 64

RESERVED_NAMESPACES = frozenset(
    {"functions", "browser", "python", "container", "multi_tool_use"}
    | {"assistant", "user", "system", "developer", "tool", "all", "none"}
)
"""Words with another meaning as a recipient: built-in tools, the client's functions, and roles."""


@dataclass(frozen=True, slots=True)
class SafeNames:
    """`originals` maps each word to its name; `notes` report the changes."""

    originals: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def words(self) -> dict[str, str]:
        """The word of each name."""
        return {name: word for word, name in self.originals.items()}


def safe_names(names: Iterable[str], *, taken: Collection[str] = ()) -> SafeNames:
    """One word for each distinct name. Valid names keep theirs, whatever the other names become."""
    different = list(dict.fromkeys(names))
    fit = {name for name in different if _word(name) == name and name not in taken}
    originals = {name: name for name in different if name in fit}
    notes = []
    for name in different:
        if name in fit:
            continue
        word = _free(_word(name), {*originals, *taken})
        originals[word] = name
        why = "another name has that word" if word != _word(name) else "a recipient cannot contain it"
        notes.append(f"{name!r} is called {word!r}: {why}.")
    order = {name: place for place, name in enumerate(different)}
    return SafeNames(dict(sorted(originals.items(), key=lambda pair: order[pair[1]])), tuple(notes))


def safe_namespace(label: str) -> str:
    """The namespace of one server's tools, distinct from every built-in."""
    word = _word(label)
    return f"mcp_{word}"[:_LONGEST] if word.lower() in RESERVED_NAMESPACES else word


def _word(name: str) -> str:
    return _UNFIT.sub("_", name)[:_LONGEST] or "_"


def _free(word: str, used: Collection[str]) -> str:
    if word not in used:
        return word
    number = 2
    while (numbered := f"{word[: _LONGEST - 8]}_{number}") in used:
        number += 1
    return numbered
