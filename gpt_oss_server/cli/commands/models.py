"""List the models of a running server, and load or unload one."""

import argparse

from gpt_oss_server.cli.commands.chat import add_server, server_key
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server models
  gpt-oss-server models load gpt-oss-20b
  gpt-oss-server models unload gpt-oss-20b --url http://127.0.0.1:9000

A server that is started with --models-max or --idle-unload loads models when they are needed."""

_SECONDS = 20.0


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    what = "what to do; else they are listed"
    parser.add_argument("action", nargs="?", choices=("load", "unload"), help=what)
    parser.add_argument("name", nargs="?", metavar="NAME", help="the model to load or unload")
    add_server(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.chat.remote import ServerApi

    api = ServerApi(args.url, server_key(args))
    if args.action is not None:
        if args.name is None:
            raise CommandLineError(f"`models {args.action}` takes the name of a model.")
        api.fetch(f"/models/{args.action}", None, {"model": args.name})
    served = api.models(_SECONDS)
    rows = [
        (str(model["id"]), model.get("state", "loaded"), f"{model.get('context_length') or 0:,}")
        for model in served
    ]
    console.out(console.table([("NAME", "STATE", "CONTEXT"), *rows]))
    return 0
