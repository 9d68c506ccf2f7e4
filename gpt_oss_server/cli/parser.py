"""The commands and the parser of the command line.

Takes nothing but the commands' own modules. Returns a parser whose errors are sentences and whose help shows
the common flags first.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass
from typing import NoReturn

from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.line.mistakes import sentence_of
from gpt_oss_server.cli.terminal import console


@dataclass(frozen=True, slots=True)
class Command:
    """A word after `gpt-oss-server`. Its module has `add_arguments(parser)` and `run(args, settings)`."""

    name: str
    summary: str
    module: str


COMMANDS = (
    Command("serve", "serve a model over HTTP", "gpt_oss_server.cli.commands.serve"),
    Command("chat", "talk with a model in the terminal", "gpt_oss_server.cli.commands.chat"),
    Command("pull", "download a model", "gpt_oss_server.cli.commands.pull"),
    Command("export", "write a model for llama.cpp", "gpt_oss_server.cli.commands.export"),
    Command("list", "list the models on this machine", "gpt_oss_server.cli.commands.list"),
    Command("mcp", "serve the browser or Python over MCP", "gpt_oss_server.cli.commands.mcp"),
    Command("render", "show the exact prompt of a request", "gpt_oss_server.cli.commands.render"),
    Command("trace", "save or show the tokens of a response", "gpt_oss_server.cli.commands.trace"),
    Command("store", "look at a store, move it or delete from it", "gpt_oss_server.cli.commands.store"),
    Command("bench", "measure how fast a model runs here", "gpt_oss_server.cli.commands.bench"),
    Command("config", "show the settings in force", "gpt_oss_server.cli.commands.config"),
    Command("doctor", "check what works on this machine", "gpt_oss_server.cli.commands.doctor"),
    Command("completion", "complete this command line with Tab", "gpt_oss_server.cli.commands.completion"),
    Command("version", "show the versions in use", "gpt_oss_server.cli.commands.version"),
)
INTRODUCTION = """\
A server for OpenAI's gpt-oss models that speaks Harmony: the Responses API and Chat Completions.
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
    summaries: dict[str, str]

    def error(self, message: str) -> NoReturn:
        sentence = sentence_of(message, self.prog.removeprefix(f"{PROGRAM} "), self._actions)
        console.err(f"{sentence} See `{self.prog} --help`.")
        self.exit(2)


def build_parser(*, everything: bool = True) -> Parser:
    """Without `everything`, the help shows the common flags and how to see the rest."""
    parser = Parser(
        prog=PROGRAM,
        description=INTRODUCTION,
        epilog=FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="store_true", help="show this program's version and exit")
    parser.subcommands = {}
    parser.summaries = {command.name: command.summary for command in COMMANDS}
    words = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
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
        sub.add_argument("--help-all", action="help", help="show every flag and exit")
        module.add_arguments(sub, everything=everything)
        sub.set_defaults(run=module.run)
        parser.subcommands[command.name] = sub
    # It lists what every command takes, and a command cannot import this module.
    parser.subcommands["completion"].set_defaults(build_parser=build_parser)
    return parser
