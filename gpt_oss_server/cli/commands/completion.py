"""Print the script that lets a shell complete commands, flags and their values with the Tab key."""

from __future__ import annotations

import argparse

from gpt_oss_server.cli.completion.scripts import SCRIPTS
from gpt_oss_server.cli.completion.words import command_words
from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server completion bash

Let the shell read it at each start, by a line in its file:
  ~/.bashrc                     eval "$(gpt-oss-server completion bash)"
  ~/.zshrc, after compinit      eval "$(gpt-oss-server completion zsh)"
  ~/.config/fish/config.fish    gpt-oss-server completion fish | source"""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace, settings: Settings) -> int:
    parser = args.build_parser()
    words = command_words(parser.subcommands, parser.summaries)
    console.out(SCRIPTS[args.shell](PROGRAM, words), end="")
    return 0
