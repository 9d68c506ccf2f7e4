"""A client's grammar of text (Lark or a regular expression), made ready to bind a body; or what is wrong.

In goes a grammar as it was sent, out comes Lark text that llguidance takes. It speaks of text alone: special
tokens and other grammars by name are refused, so that no body can end its message or begin another. It must
not know of requests or tools.
"""

from __future__ import annotations

import re
from typing import Literal

from gpt_oss_server.constraints.matcher import GrammarError, Grammars, first_line_and_cause

Syntax = Literal["lark", "regex"]

LONGEST = 64_000  # characters
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|/(?![/*])(?:\\.|[^/\\])+/|//[^\n]*|#[^\n]*', re.DOTALL)
_SLASH = re.compile(r"(\\.)|/", re.DOTALL)


class GrammarRefused(Exception):
    """The sentence for the client, to go on after "the grammar cannot be enforced: "."""


def text_grammar(grammars: Grammars, syntax: Syntax, definition: str) -> str:
    """Raises `GrammarRefused`."""
    if len(definition) > LONGEST:
        raise GrammarRefused(f"it has {len(definition)} characters, and {LONGEST} are served")
    if syntax == "regex":
        lark = f"start: /{_escaped(definition)}/\n" if definition else 'start: ""\n'
    else:
        lark = definition
        _check_text_alone(lark)
    if (problem := grammars.problem(lark)) is not None:
        raise GrammarRefused(_readable(problem))
    try:
        grammars.compile(lark)
    except GrammarError as error:
        raise GrammarRefused(_readable(str(error))) from None
    return lark


def _escaped(pattern: str) -> str:
    """As it stands between the slashes of a Lark terminal."""
    lines = pattern.replace("\r", "\\r").replace("\n", "\\n")
    return _SLASH.sub(lambda found: found[1] or r"\/", lines)


def _check_text_alone(lark: str) -> None:
    bare = _LITERAL.sub(" ", lark)
    for sign, what in (("<", "a special token"), ("@", "another grammar")):
        if sign in bare:
            raise GrammarRefused(f"{sign!r} outside of a literal names {what}, and it may hold text alone")


def _readable(problem: str) -> str:
    first, cause = first_line_and_cause(problem)
    return f"{first.rstrip(':')}{f' ({cause})' if cause else ''}"[:300]
