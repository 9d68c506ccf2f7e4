"""argparse's messages as sentences that state what to write. Unknown ones stay: versions of Python differ."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Sequence

_MISSING = re.compile(r"the following arguments are required: (.+)")
_CHOICE = re.compile(r"argument ([^:]+): invalid choice: (.+?) \(choose from .+\)", re.DOTALL)
_NO_VALUE = re.compile(r"argument ([^:]+): expected (?:one|at least one) argument")
_BOTH = re.compile(r"argument ([^:]+): not allowed with argument (.+)")
_LIKE = 0.6


def as_sentence(message: str, command: str, actions: Sequence[argparse.Action]) -> str:
    by_name = {_name(action): action for action in actions}
    if match := _MISSING.fullmatch(message):
        names = [name.strip() for name in match[1].split(",")]
        return f"`{command}` needs {' and '.join(_described(name, by_name.get(name)) for name in names)}."
    if match := _CHOICE.fullmatch(message):
        return _wrong_choice(match[1], match[2], by_name.get(match[1]))
    if match := _NO_VALUE.fullmatch(message):
        return f"{_flag(match[1])} needs a value."
    if match := _BOTH.fullmatch(message):
        return f"{_flag(match[1])} and {_flag(match[2])} exclude each other."
    return f"{message[:1].upper()}{message[1:]}."


def _described(name: str, action: argparse.Action | None) -> str:
    if action is None:
        return name
    what = _listed(action.choices) if action.choices else action.help
    return f"{name.upper()} ({what})" if what else name.upper()


def _wrong_choice(name: str, word: str, action: argparse.Action | None) -> str:
    choices = [] if action is None else [str(choice) for choice in action.choices or ()]
    shown = _flag(name) if name.startswith("-") else name.upper()
    close = difflib.get_close_matches(word.strip("'\""), choices, 1, _LIKE)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{shown} is {_listed(choices)}, not {word}.{hint}"


def _listed(choices: Iterable[object]) -> str:
    *first, last = map(str, choices)
    return f"{', '.join(first)} or {last}" if first else last


def _name(action: argparse.Action) -> str:
    """As argparse names it in a message."""
    if action.option_strings:
        return "/".join(action.option_strings)
    return str(action.metavar or action.dest)


def _flag(names: str) -> str:
    """The first name of a flag that is written out: argparse joins all names with slashes."""
    return next((name for name in names.split("/") if name.startswith("--")), names)
