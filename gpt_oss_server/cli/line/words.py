"""What can follow on a command line: the commands, and the flags and the words of each, for any shell."""

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MODELS = ("tiny", "openai/gpt-oss-20b", "openai/gpt-oss-120b")
_FILES = re.compile(r"\b(FILE|PATH|FOLDER|DIR|PLACE)\b")
_CHOICES = re.compile(r"[a-z0-9-]+(\|[a-z0-9-]+)+")
_SHORT = 70  # characters of a description: shells show one line


@dataclass(frozen=True, slots=True)
class Value:
    """What a flag's value, or a word, can be: one of `choices` or a file; anything if there is neither."""

    choices: tuple[str, ...] = ()
    files: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    names: tuple[str, ...]
    help: str
    value: Value | None  # None for a switch


@dataclass(frozen=True, slots=True)
class CommandWords:
    name: str
    summary: str
    flags: tuple[Flag, ...]
    first: Value  # the first word after the command
    later: Value  # any further word


def command_words(
    parsers: Mapping[str, argparse.ArgumentParser], summaries: Mapping[str, str]
) -> list[CommandWords]:
    listed = []
    for name, parser in parsers.items():
        words = [_value(action) for action in parser._actions if not action.option_strings]
        first, later = words[0] if words else Value(), words[-1] if len(words) > 1 else Value()
        listed.append(CommandWords(name, summaries[name], tuple(_flags(parser)), first, later))
    return listed


def _flags(parser: argparse.ArgumentParser) -> Iterator[Flag]:
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            value = None if action.nargs == 0 else _value(action)
            yield Flag(tuple(action.option_strings), _described(action), value)


def _value(action: argparse.Action) -> Value:
    if action.choices is not None:
        return Value(tuple(str(choice) for choice in action.choices))
    shown = action.metavar if isinstance(action.metavar, str) else ""
    if action.dest in ("model", "model_word", "question"):
        return Value(MODELS, files=True)
    if _CHOICES.fullmatch(shown):
        return Value(tuple(shown.split("|")))
    return Value(files=bool(_FILES.search(shown)))


def _described(action: argparse.Action) -> str:
    """The first sentence of the help, in one line and without signs that mean something to a shell."""
    text = " ".join((action.help or "").replace("%%", "%").split())
    sentence = re.split(r"(?<=\w)[.;:] ", text, maxsplit=1)[0].rstrip(".")
    plain = re.sub(r"[`'\"\\$\[\]:]", "", sentence)
    return plain if len(plain) <= _SHORT else plain[: _SHORT - 1].rsplit(" ", 1)[0] + "…"
