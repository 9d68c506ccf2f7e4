"""Download a model from the Hugging Face hub into its cache, from where `serve` and `chat` take it."""

import argparse
from pathlib import Path

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server pull openai/gpt-oss-20b
  gpt-oss-server serve openai/gpt-oss-20b

An interrupted download continues where it stopped. The variable HF_HOME chooses the place."""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("repo", metavar="MODEL", help="a Hugging Face repo, such as openai/gpt-oss-20b")
    add_flags(parser, only=("log_level",), everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from inference.backends.hub import download
    from inference.backends.names import meant_by
    from inference.backends.table import EMBEDDED
    from inference.paths import REPO_ID

    repo: str = args.repo
    if repo == EMBEDDED:
        raise CommandLineError(f"{EMBEDDED} is embedded in this program: gpt-oss-server serve")
    if not REPO_ID.fullmatch(repo) or Path(repo).is_dir():
        meant = meant_by(repo)
        advice = f"Try: gpt-oss-server pull {meant}" if meant else "Name it as owner/name."
        raise CommandLineError(f"{repo} is no Hugging Face repo. {advice}")
    folder = download(repo)
    console.out(f"{repo} is in {folder}. Serve it with: gpt-oss-server serve {repo}")
    return 0
