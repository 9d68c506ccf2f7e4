"""Show the versions in use, for a bug report. Does not load torch."""

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

_PACKAGES = ("torch", "triton", "fastapi", "uvicorn", "pydantic")


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")


def run(args: argparse.Namespace, settings: Settings) -> int:
    versions = {
        "gpt-oss-server": _version("gpt-oss-server"),
        "python": platform.python_version(),
        "harmony library": harmony_library(),
        **{name: _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
    }
    rows = (f"{name:<16} {version}" for name, version in versions.items())
    console.out(json.dumps(versions) if args.json else "\n".join(rows))
    return 0


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
