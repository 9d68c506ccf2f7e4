"""Write a model for another program: `gguf` is llama.cpp's format."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings
from tools.extras import how_to_install, missing_package

EXAMPLES = """\
examples:
  gpt-oss-server export gguf tiny.gguf
  gpt-oss-server export gguf gpt-oss-20b.gguf --model openai/gpt-oss-20b
  llama-server -m tiny.gguf --port 8080 & gpt-oss-server serve llama:http://127.0.0.1:8080

The weights keep their precision. Needs the extra gguf."""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("format", choices=("gguf",), help="the file's format")
    parser.add_argument("path", metavar="PATH", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace an existing file")
    add_flags(parser, only=("model", "log_level"), everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    path = Path(args.path).expanduser()
    if path.is_dir():
        raise CommandLineError(f"{path} is a folder. Name the file: {path / 'model.gguf'}")
    if not path.parent.is_dir():
        raise CommandLineError(f"The folder {path.parent} does not exist. Make it first.")
    if path.exists() and not args.force:
        raise CommandLineError(f"{path} exists already. Name another file, or add --force to replace it.")
    if error := missing_package(["gguf"]):
        raise CommandLineError(how_to_install(error))
    from gpt_oss_server.cli.server.exported import harmony_vocabulary
    from inference.backends.checkpoints import checkpoint_folder
    from inference.export.gguf_file import write_gguf

    name = settings.model.rstrip("/").rpartition("/")[2]
    write_gguf(checkpoint_folder(settings.model), path, harmony_vocabulary(), name=name)
    console.out(f"{path} is written. Run it with: llama-server -m {path}")
    return 0
