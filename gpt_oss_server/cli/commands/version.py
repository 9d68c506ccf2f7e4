"""Show the versions in use, for a bug report. Does not load torch."""

from __future__ import annotations

import argparse
import json
import platform
from importlib import metadata

from gpt_oss_server.cli.terminal import console
from gpt_oss_server.harmony.library import harmony_library
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server version
  gpt-oss-server version --json"""

SHOWN = ("torch", "triton", "fastapi", "uvicorn", "pydantic")


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.json:
        console.out(json.dumps(versions()))
        return 0
    for name, version in versions().items():
        console.out(f"{name:<16} {version}")
    return 0


def versions() -> dict[str, str]:
    shown = {"gpt-oss-server": _version("gpt-oss-server"), "python": platform.python_version()}
    shown["harmony library"] = harmony_library()
    shown |= {name: _version(name) for name in SHOWN}
    shown["platform"] = platform.platform()
    return shown


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
