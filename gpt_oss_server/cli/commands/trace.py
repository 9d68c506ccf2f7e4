"""Save the trace of a response as a file, which the playground shows: every token, and how it was read."""

import argparse
import json
from pathlib import Path

from gpt_oss_server.cli.commands.chat import add_server, server_key
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server trace resp_123 > trace.json
  gpt-oss-server trace resp_123 --conversation -o trace.json
  gpt-oss-server serve scripted:trace.json

The server must allow it (--debug-api). A trace holds the request, the answer and all tokens: read it before
you pass it on."""

_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("response", metavar="ID", help="a response's id")
    add_server(parser)
    parser.add_argument("--conversation", action="store_true", help="with the responses before this one")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to save it; else standard output")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.chat.remote import ServerApi

    query = "?conversation=true" if args.conversation else ""
    api = ServerApi(args.url, server_key(args))
    text = json.dumps(api.fetch(f"/responses/{args.response}/trace{query}", _SECONDS), ensure_ascii=False)
    if args.output is None:
        console.out(text)
    else:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
        console.err(f"Saved {args.output}. The playground opens it.")
    return 0
