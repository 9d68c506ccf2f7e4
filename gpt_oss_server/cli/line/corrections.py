"""Corrects a command line: what a wrong word probably means, and the whole line as it should be."""

import argparse
import difflib
import re
import shlex
from collections.abc import Mapping, Sequence

from inference.backends.names import names_model

PROGRAM = "gpt-oss-server"
Parsers = Mapping[str, argparse.ArgumentParser]
ALONE = ("-h", "--help", "-V", "--version", "--help-all")  # flags that need no command
_NUMBER = re.compile(r"-\d")
_LIKE, _LIKE_FLAG = 0.6, 0.75  # how similar a misspelt word must be


def expanded(words: Sequence[str]) -> list[str]:
    """`help serve` as `serve --help`."""
    match words:
        case ["help"]:
            return ["--help"]
        case ["help", command, *_]:
            return [command, "--help"]
        case _:
            return list(words)


def corrected(words: Sequence[str], parsers: Parsers) -> str | None:
    if not words or words[0] in ALONE:
        return None
    command, rest, notes = words[0], list(words[1:]), list[str]()
    if command in parsers and rest[:1] in (["--version"], ["-V"]):
        return f"`{command}` has no flag {rest[0]}; it stands alone.\nTry: {PROGRAM} --version"
    if command not in parsers:
        note, command, rest = _meant_command(words, parsers)
        notes.append(note)
        if not command:
            return f"{note} See `{PROGRAM} --help`."
    flag_notes, rest = _with_known_flags(rest, command, parsers)
    notes += flag_notes
    if not notes:
        return None
    return "\n".join([*notes, f"Try: {shlex.join([PROGRAM, command, *rest])}"])


def _meant_command(words: Sequence[str], parsers: Parsers) -> tuple[str, str, list[str]]:
    word, rest = words[0], list(words[1:])
    if word.startswith("-"):
        if close := difflib.get_close_matches(word.lower(), ALONE, 1, _LIKE_FLAG):
            return f"There is no flag {word}. Did you mean {close[0]}?", "", rest
        return "A command comes first.", "serve", list(words)
    if close := difflib.get_close_matches(word.lower(), [*parsers, "help"], 1, _LIKE):
        meant = "" if close[0] == "help" else close[0]
        return f"There is no command `{word}`. Did you mean `{close[0]}`?", meant, rest
    if names_model(word):
        return f"{word} is a model; a command comes first.", "serve", list(words)
    return f"There is no command `{word}`. Commands: {', '.join(parsers)}.", "", rest


def _with_known_flags(words: Sequence[str], command: str, parsers: Parsers) -> tuple[list[str], list[str]]:
    """What is wrong with the flags, and the words without unknown ones or with the right ones."""
    known = parsers[command]._option_string_actions
    notes, kept, left = list[str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return notes, [*kept, word, *left]
        name, equals, value = word.partition("=")
        joined = not word.startswith("--") and word[:2] in known  # -bp, -mMODEL
        if not _is_flag(word) or name in known or joined:
            kept.append(word)
            continue
        note, instead = _meant_flag(name, command, parsers)
        notes.append(note)
        if instead:
            kept.append(instead + equals + value)
        elif not equals and left and not _is_flag(left[0]) and not names_model(left[0]):
            left.pop(0)  # probably the flag's value
    return notes, kept


def _meant_flag(name: str, command: str, parsers: Parsers) -> tuple[str, str]:
    """What is wrong with an unknown flag, and the flag that it probably means."""
    known = [flag for flag in parsers[command]._option_string_actions if flag.startswith("--")]
    problem = f"`{command}` has no flag {name}."
    owners = [other for other, parser in parsers.items() if name in parser._option_string_actions]
    if owners:
        return f"{problem} It belongs to `{owners[0]}`.", ""
    if close := difflib.get_close_matches(name, known, 1, _LIKE_FLAG):
        return f"{problem} Did you mean {close[0]}?", close[0]
    return f"{problem} `{PROGRAM} {command} --help-all` lists all flags.", ""


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word) and " " not in word
