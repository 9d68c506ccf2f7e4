"""The command line: takes words and returns an exit code.

0: success. 1: failure, with a sentence on standard error. 2: the command line itself is wrong. A user's
mistake never causes a traceback. Each command imports what it needs when it runs, so that `--help` and
`version` are fast.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from gpt_oss_server.cli.house import foreign_packages
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.errors import CommandLineError
from gpt_oss_server.settings import SettingsError, misspelt_variables, read_settings


@dataclass(frozen=True, slots=True)
class Command:
    """A word after `gpt-oss-server`. Its module has `add_arguments(parser)` and `run(args, settings)`."""

    name: str
    summary: str
    module: str


COMMANDS = (
    Command("serve", "serve a model over HTTP", "gpt_oss_server.cli.commands.serve"),
    Command("chat", "talk with a model in the terminal", "gpt_oss_server.cli.commands.chat"),
    Command("mcp", "serve the browser or Python over MCP", "gpt_oss_server.cli.commands.mcp"),
    Command("render", "show the exact prompt of a request", "gpt_oss_server.cli.commands.render"),
    Command("store", "look at a store, move it or delete from it", "gpt_oss_server.cli.commands.store"),
    Command("bench", "measure how fast a model runs here", "gpt_oss_server.cli.commands.bench"),
    Command("version", "show the versions in use", "gpt_oss_server.cli.commands.version"),
)

INTRODUCTION = """\
A Harmony-format server for OpenAI's open-weight gpt-oss models: the Responses API over its own inference.
"""

FIRST_STEPS = """\
first steps:
  gpt-oss-server serve                     the embedded model on http://127.0.0.1:8000/v1
  gpt-oss-server chat                      the same, in this terminal
  gpt-oss-server serve --model openai/gpt-oss-20b

Each command has its own help: gpt-oss-server serve --help. Every flag is also an environment variable
(--max-body-bytes is GPT_OSS_SERVER_MAX_BODY_BYTES); the flag wins."""


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are sentences that point to the help."""

    subcommands: dict[str, argparse.ArgumentParser]

    def error(self, message: str) -> NoReturn:
        sentence = message[:1].upper() + message[1:]
        console.err(f"{sentence}. See `{self.prog} --help`.")
        self.exit(2)


def build_parser() -> Parser:
    parser = Parser(
        prog="gpt-oss-server",
        description=INTRODUCTION,
        epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.subcommands = {}
    words = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    for command in COMMANDS:
        module = importlib.import_module(command.module)
        sub = words.add_parser(
            command.name,
            help=command.summary,
            description=module.__doc__,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
        parser.subcommands[command.name] = sub
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # A character that cannot be decoded or encoded is replaced; the rest of the text survives.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    foreign = foreign_packages()
    if foreign:
        console.err(foreign)
        return 1
    args = build_parser().parse_args(argv)
    try:
        for strange, meant in misspelt_variables(os.environ):
            console.err(f"The variable {strange} is not a setting. Did you mean {meant}?")
        settings = read_settings(vars(args), os.environ)
    except SettingsError as error:
        console.err(str(error))
        return 2
    try:
        code: int = args.run(args, settings)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        console.give_up_output()  # `… | head`
        return 1
    except OSError as error:
        named = f": {error.filename}" if error.filename else ""
        console.err(f"The system refused: {error.strerror or error}{named}.")
        return 1
    except Exception as error:
        if not is_expected(error):
            if settings.log_level == "debug":
                raise
            kind = type(error).__name__
            console.err(f"A bug in gpt-oss-server: {kind}: {error}. `--log-level debug` shows where.")
            return 1
        console.err(str(error))
        return 1
    return code


def is_expected(error: Exception) -> bool:
    """Whether its text is a sentence for the user; any other error is a bug."""
    from gpt_oss_server.errors import ApiError
    from inference.engine import InferenceError

    return isinstance(error, CommandLineError | SettingsError | InferenceError | ApiError)
