"""The commands, and the parser of the command line: its errors are sentences, its help shows common flags."""

import argparse
import difflib
import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.terminal import console

# Each word after `gpt-oss-server` is a module of `commands` with EXAMPLES, `add_arguments(parser)` and
# `run(args, settings)`.
COMMANDS = {
    "serve": "serve a model over HTTP",
    "chat": "talk with a model in the terminal",
    "launch": "run a coding agent with a model",
    "pull": "download a model",
    "export": "write a model for llama.cpp",
    "list": "list the models on this machine",
    "models": "list, load and unload a server's models",
    "batch": "have a server answer a file of requests",
    "mcp": "serve the browser or Python over MCP",
    "render": "show the exact prompt of a request",
    "warm": "read a prompt into the cache on disk",
    "trace": "save or show the tokens of a response",
    "store": "look at a store, move it or delete from it",
    "bench": "measure how fast a model runs here",
    "config": "show the settings in force",
    "doctor": "check what works on this machine",
    "version": "show the versions in use",
}
INTRODUCTION = """\
A server for OpenAI's gpt-oss models that speaks Harmony: the Responses API, Chat Completions and Messages.
"""

FIRST_STEPS = """\
first steps:
  gpt-oss-server serve                     the embedded model on http://127.0.0.1:8000/v1
  gpt-oss-server chat                      the same, in this terminal
  gpt-oss-server serve openai/gpt-oss-20b

Each command has its own help: `gpt-oss-server help serve`, and `gpt-oss-server serve --help-all` with every
flag. Every flag is also an environment variable (--max-body-bytes is GPT_OSS_SERVER_MAX_BODY_BYTES) and a row
of a configuration file (max_body_bytes, with --config FILE). The flag wins, then the variable."""


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are sentences that point to the help."""

    subcommands: dict[str, argparse.ArgumentParser]

    def error(self, message: str) -> NoReturn:
        sentence = as_sentence(message, self.prog.removeprefix(f"{PROGRAM} "), self._actions)
        console.err(f"{sentence} See `{self.prog} --help`.")
        self.exit(2)


def build_parser(*, everything: bool = True) -> Parser:
    """Without `everything`, the help shows the common flags and how to see the rest."""
    form: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
    parser = Parser(prog=PROGRAM, description=INTRODUCTION, epilog=FIRST_STEPS, **form)
    parser.add_argument("-V", "--version", action="store_true", help="show this program's version and exit")
    parser.subcommands = {}
    words = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        module = importlib.import_module(f"gpt_oss_server.cli.commands.{name}")
        about = {"description": module.__doc__, "epilog": module.EXAMPLES}
        sub = words.add_parser(name, help=summary, **about, **form)
        sub.add_argument("--help-all", action="help", help="show every flag and exit")
        module.add_arguments(sub, everything=everything)
        sub.set_defaults(run=module.run)
        parser.subcommands[name] = sub
    return parser


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
