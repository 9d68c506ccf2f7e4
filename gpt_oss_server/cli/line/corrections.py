"""Corrects a command line: what a wrong word means here, and the whole line as it should be.

Words that argparse can read get None, others sentences that end with the right line.
"""

import argparse
import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from inference.backends.names import meant_by, names_model

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
    command, rest = words[0], list(words[1:])
    if command in parsers and rest[:1] in (["--version"], ["-V"]):
        return f"`{command}` has no flag {rest[0]}; it stands alone.\nTry: {PROGRAM} --version"
    notes: list[str] = []
    if command not in parsers:
        if command in NO_COMMANDS:
            return f"There is no command `{command}`. {NO_COMMANDS[command]}"
        note, command, rest = _meant_command(words, parsers)
        notes.append(note)
        if not command:
            return f"{note} See `{PROGRAM} --help`."
    flag_notes, rest = _without_foreign_flags(rest, command, parsers)
    notes += flag_notes
    if not notes:
        return None
    model_note, rest = _with_meant_model(rest, parsers[command])
    line = shlex.join([PROGRAM, command, *rest])
    return "\n".join([*notes, *model_note, f"Try: {line}"])


def _meant_command(words: Sequence[str], parsers: Parsers) -> tuple[str, str, list[str]]:
    word, rest = words[0], list(words[1:])
    if word.startswith("-"):
        if close := difflib.get_close_matches(word.lower(), ALONE, 1, _LIKE_FLAG):
            return f"There is no flag {word}. Did you mean {close[0]}?", "", rest
        return "A command comes first.", "serve", list(words)
    if word in COMMANDS:
        return f"There is no command `{word}`; `{COMMANDS[word]}` does that here.", COMMANDS[word], rest
    if close := difflib.get_close_matches(word.lower(), [*parsers, "help"], 1, _LIKE):
        if close[0] == "help":
            return f"There is no command `{word}`. Did you mean `help`?", "", rest
        return f"There is no command `{word}`. Did you mean `{close[0]}`?", close[0], rest
    if names_model(word):
        return f"{word} is a model; a command comes first.", "serve", list(words)
    return f"There is no command `{word}`. Commands: {', '.join(parsers)}.", "", rest


def _without_foreign_flags(
    words: Sequence[str], command: str, parsers: Parsers
) -> tuple[list[str], list[str]]:
    """What is wrong with the flags, and the words without them or with the right ones."""
    known = parsers[command]._option_string_actions
    notes, kept, left = list[str](), list[str](), list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            return notes, [*kept, word, *left]
        name, equals, value = word.partition("=")
        other = None if name in known else FLAGS.get(name)
        joined = not word.startswith("--") and word[:2] in known  # -bp, -mMODEL
        if not _is_flag(word) or name in known or (joined and other is None):
            kept.append(word)
        elif other is None:
            note, instead = _meant_flag(name, command, parsers)
            notes.append(note)
            if instead:
                kept.append(instead + equals + value)
            elif not equals and left and not _is_flag(left[0]) and not names_model(left[0]):
                left.pop(0)  # probably the flag's value
        else:
            notes.append(f"{name}: {other.reason}.")
            follows = other.value and not equals and bool(left) and not _is_flag(left[0])
            values = [value] if equals else [left.pop(0)] if follows else []
            if other.instead in known:
                kept += [other.instead, *values] if other.value else [other.instead]
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


def _with_meant_model(words: list[str], parser: argparse.ArgumentParser) -> tuple[list[str], list[str]]:
    """The name that this server has for a model that another program calls otherwise."""
    if not any(action.dest in ("model_word", "question") for action in parser._actions):
        return [], words
    for at, word in enumerate(words):
        follows_flag = at > 0 and _is_flag(words[at - 1]) and words[at - 1] not in ("-m", "--model", "-hf")
        if follows_flag or _is_flag(word) or not names_model(word):
            continue
        meant = meant_by(word)
        if meant is not None and meant != word:
            return [f"The model {word} is {meant} here."], [*words[:at], meant, *words[at + 1 :]]
    return [], words


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word) and " " not in word


class Other(NamedTuple):
    """A flag of another program: what to know about it here, and whether a value follows it."""

    reason: str
    value: bool = True
    instead: str = ""  # the flag to write in its place, if any


COMMANDS = {
    **dict.fromkeys(("run", "generate"), "chat"),
    **dict.fromkeys(("start", "server", "llama-server"), "serve"),
    **dict.fromkeys(("ls", "show"), "list"),
    "ps": "models",
    "download": "pull",
    "benchmark": "bench",
    "collect-env": "doctor",
    "info": "version",
}
_REMOVE = "Models are folders, which `gpt-oss-server list` names: remove the folder."
NO_COMMANDS = {
    "stop": "A server ends with Ctrl-C, or SIGTERM to its process.",
    "rm": _REMOVE,
    "delete": _REMOVE,
    "create": "`serve NAME=MODEL` names a model, and --served-model-name gives it further names.",
    "cp": "--served-model-name gives a model further names.",
    "quantize": "gpt-oss checkpoints are quantized already (MXFP4).",
}

_ONE_CARD = Other("the model runs on one device, which --device chooses")
_READ = Other("calls and reasoning are always read")
# By the flag's name. Values are left out of the corrected line together with their flags.
FLAGS = {
    **dict.fromkeys(("--tensor-parallel-size", "-tp", "-ngl", "--n-gpu-layers"), _ONE_CARD),
    "--gpu-memory-utilization": Other("--kv-memory SIZE sets the memory for keys and values"),
    **dict.fromkeys(("--tool-call-parser", "--reasoning-parser"), _READ),
    "--enable-auto-tool-choice": _READ._replace(value=False),
    **dict.fromkeys(("--dtype", "--flash-attn", "-fa"), Other("the checkpoint decides")),
    "--jinja": Other("Harmony is built in", value=False),
    "--think": Other("here --effort", instead="--effort"),
    "--hidethinking": Other("here --no-reasoning", value=False, instead="--no-reasoning"),
}
