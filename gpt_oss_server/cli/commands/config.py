"""Show the settings in force and where each comes from. The output is a configuration file."""

import argparse
import json

from gpt_oss_server.cli.line.flags import add_flags, add_model
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import OPTIONS, Settings
from gpt_oss_server.settings.shown import as_json, as_toml, is_hidden
from gpt_oss_server.settings.sources import CONFIG

EXAMPLES = """\
examples:
  gpt-oss-server config
  gpt-oss-server config --changed --config server.toml --port 9000
  gpt-oss-server config --port 9000 > server.toml

All flags of serve work here."""


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    add_model(parser)
    parser.add_argument("--changed", action="store_true", help="only settings that are set somewhere")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    add_flags(parser, everything=False)


def run(args: argparse.Namespace, settings: Settings) -> int:
    sources = args.configuration.sources
    shown = [
        (option, getattr(settings, option.name), sources.get(option.name, "default"))
        for option in OPTIONS
        if not args.changed or option.name in sources
    ]
    if args.json:
        rows = {o.name: {"value": as_json(o, value), "source": source} for o, value, source in shown}
        console.out(json.dumps(rows, indent=2, ensure_ascii=False))
        return 0
    file = f" The configuration file is {settings.config}." if settings.config else ""
    console.out(f"# The settings in force, as a configuration file (--config).{file}")
    section = ""
    for option, value, source in shown:
        if option.name == CONFIG:
            continue
        if option.section != section:
            section = option.section
            console.out(f"\n# {section}")
        row = f"{option.name} = {as_toml(option, value)}"
        if is_hidden(option, value):
            row = f"# {row}"  # a file with this row would set the hidden form
        console.out(f"{row:<40} # {source}")
    return 0
