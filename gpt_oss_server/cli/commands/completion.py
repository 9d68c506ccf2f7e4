"""Print the script that lets a shell complete commands, flags and their values with the Tab key."""

from __future__ import annotations

import argparse

from gpt_oss_server.cli.completion.scripts import SCRIPTS
from gpt_oss_server.cli.completion.words import command_words
from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples, each for the file that the shell reads at its start:
  eval "$(gpt-oss-server completion bash)"       ~/.bashrc
  eval "$(gpt-oss-server completion zsh)"        ~/.zshrc, after compinit
  gpt-oss-server completion fish | source        ~/.config/fish/config.fish"""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace, settings: Settings) -> int:
    parser = args.build_parser()
    words = command_words(parser.subcommands, parser.summaries)
    console.out(SCRIPTS[args.shell](PROGRAM, words), end="")
    return 0
