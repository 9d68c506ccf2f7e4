"""Look at a store, shrink it or delete from it. It may be in use by a server meanwhile."""

import argparse
import asyncio

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server store stat --store sqlite
  gpt-oss-server store stat --config server.toml
  gpt-oss-server store vacuum --store sqlite:server.sqlite --store-max-age 7d
  gpt-oss-server store delete resp_123 --store sqlite

stat shows what the store holds. vacuum deletes what exceeds the bounds and returns the space to the disk."""

ACTIONS = ("stat", "vacuum", "delete")
SETTINGS = (
    "store",
    "store_max_responses",
    "store_max_conversations",
    "store_max_bytes",
    "store_max_age",
    "store_max_conversation_age",
    "background_log_max_bytes",
    "background_log_max_age",
    "trace_max_bytes",
)


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("action", choices=ACTIONS, help="what to do")
    parser.add_argument("names", nargs="*", default=[], metavar="ID", help="what to delete")
    add_flags(parser, only=SETTINGS, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.commands.store_actions import act

    return asyncio.run(act(args.action, args.names, settings))
