"""argparse's messages as sentences that state what to write.

Takes a message and the arguments of the command. Returns a sentence. A message that it does not know
stays as it is: argparse words some of them differently in each version of Python.
"""

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


def sentence_of(message: str, command: str, actions: Sequence[argparse.Action]) -> str:
    by_name = {_name(action): action for action in actions}
    if found := _MISSING.fullmatch(message):
        names = [name.strip() for name in found[1].split(",")]
        return f"`{command}` needs {' and '.join(_described(name, by_name.get(name)) for name in names)}."
    if found := _CHOICE.fullmatch(message):
        return _wrong_choice(found[1], found[2], by_name.get(found[1]))
    if found := _NO_VALUE.fullmatch(message):
        return f"{_flag(found[1])} needs a value."
    if found := _BOTH.fullmatch(message):
        return f"{_flag(found[1])} and {_flag(found[2])} exclude each other."
    return f"{message[:1].upper()}{message[1:]}."


def _described(name: str, action: argparse.Action | None) -> str:
    if action is None:
        return name
    what = _listed(action.choices) if action.choices else action.help
    return f"{name.upper()} ({what})" if what else name.upper()


def _wrong_choice(name: str, given: str, action: argparse.Action | None) -> str:
    choices = [] if action is None or action.choices is None else [str(each) for each in action.choices]
    shown = _flag(name) if name.startswith("-") else name.upper()
    close = difflib.get_close_matches(given.strip("'\""), choices, 1, _LIKE)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"{shown} is {_listed(choices)}, not {given}.{hint}"


def _listed(choices: Iterable[object]) -> str:
    *first, last = [str(each) for each in choices]
    return f"{', '.join(first)} or {last}" if first else last


def _name(action: argparse.Action) -> str:
    """As argparse names it in a message."""
    if action.option_strings:
        return "/".join(action.option_strings)
    return str(action.metavar or action.dest)


def _flag(names: str) -> str:
    """The first name of a flag that is written out: argparse joins all names with slashes."""
    return next((name for name in names.split("/") if name.startswith("--")), names)
