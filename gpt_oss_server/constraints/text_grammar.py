"""Prepares a client's grammar of text (Lark or a regular expression) for enforcement, or refuses it.

It describes only text: special tokens and references to other grammars are refused, so that no body can end
its message or start another.
"""

import json
import re
from collections.abc import Sequence
from typing import Literal

from gpt_oss_server.constraints.matcher import GrammarError, Grammars, first_line_and_cause

Syntax = Literal["lark", "regex", "ebnf"]  # ebnf: Lark, or the notation of llama.cpp (GBNF)

LONGEST = 64_000  # characters
# Of one regular expression: `.*.*…` and `a?a?…` are compiled in time quadratic in their length.
LONGEST_REGEX = 8_000
# The two groups are empty where a literal is not closed: without them, each of its escapes would be tried as
# the beginning of another.
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*("|)|/(?![/*])(?:\\.|[^/\\])+(/|)|//[^\n]*|#[^\n]*', re.DOTALL)
_SLASH = re.compile(r"(\\.)|/", re.DOTALL)


class GrammarRefused(Exception):
    """The reason, for the client, as the continuation of "the grammar cannot be enforced: "."""


def text_grammar(grammars: Grammars, syntax: Syntax, definition: str) -> str:
    """The grammar as Lark text; raises `GrammarRefused`."""
    if len(definition) > LONGEST:
        raise GrammarRefused(f"it has {len(definition)} characters, and the limit is {LONGEST}")
    if syntax == "regex":
        _check_regex(definition)
        lark = f"start: /{_escaped(definition)}/\n" if definition else 'start: ""\n'
    else:
        lark = _as_lark(definition) if syntax == "ebnf" else definition
        _check_text_alone(lark)
    if (problem := grammars.problem(lark)) is not None:
        raise GrammarRefused(_readable(problem))
    try:
        grammars.compile(lark)
    except GrammarError as error:
        raise GrammarRefused(_readable(str(error))) from None
    return lark


def _as_lark(definition: str) -> str:
    from llguidance.gbnf_to_lark import any_to_lark  # an optional dependency, as in matcher.py

    try:
        return str(any_to_lark(definition))
    except RecursionError:
        raise GrammarRefused("it is nested too deeply") from None
    except Exception as error:  # the converter has no root of its errors
        raise GrammarRefused(_readable(str(error) or type(error).__name__)) from None


def choice_grammar(choices: Sequence[str]) -> str:
    """Lark text for one of these texts."""
    return "start: " + " | ".join(json.dumps(each, ensure_ascii=False) for each in choices) + "\n"


def _escaped(pattern: str) -> str:
    """The pattern as it is spelt between the slashes of a Lark terminal."""
    lines = pattern.replace("\r", "\\r").replace("\n", "\\n")
    return _SLASH.sub(lambda found: found[1] or r"\/", lines)


def _check_text_alone(lark: str) -> None:
    bare = _LITERAL.sub(_blank, lark)
    for sign, what in (("<", "a special token"), ("@", "another grammar")):
        if sign in bare:
            raise GrammarRefused(f"{sign!r} outside of a literal names {what}, but only text is allowed")


def _blank(found: re.Match[str]) -> str:
    """White space for a literal or a comment; what is not closed stays."""
    _, end_of_regex = found.groups()
    if end_of_regex:
        _check_regex(found[0])
    return found[0] if "" in found.groups() else " "


def _check_regex(pattern: str) -> None:
    if len(pattern) > LONGEST_REGEX:
        problem = f"a regular expression in it has {len(pattern)} characters"
        raise GrammarRefused(f"{problem}, and the limit is {LONGEST_REGEX}")


def _readable(problem: str) -> str:
    first, cause = first_line_and_cause(problem)
    return f"{first.rstrip(':')}{f' ({cause})' if cause else ''}"[:300]
