"""Save the trace of a response as a file, or show such a file: every token, and how it was read."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.commands.chat import add_server, server_key
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.cli.terminal.trace_view import trace_lines
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server trace resp_123 > trace.json
  gpt-oss-server trace resp_123 --conversation -o trace.json
  gpt-oss-server trace show trace.json
  gpt-oss-server serve scripted:trace.json

The server must allow it (--debug-api). A trace holds the request, the answer and all tokens: read it before
you pass it on. The playground opens trace files too."""

_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("words", nargs="+", metavar="ID", help="a response's id; or: show FILE")
    add_server(parser)
    parser.add_argument("--conversation", action="store_true", help="with the responses before this one")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to save it; else standard output")
    parser.add_argument("--text", action="store_true", help="show: texts and slips without the single tokens")


def run(args: argparse.Namespace, settings: Settings) -> int:
    words: list[str] = args.words
    if words[0] == "show" and len(words) == 2:
        colour = console.colourful(sys.stdout)
        for line in trace_lines(_read_trace(words[1]), colour=colour, tokens=not args.text):
            console.out(line)
        return 0
    if len(words) != 1 or words[0] == "show":
        raise CommandLineError("`trace` takes the id of one response, or `show` and a file.")
    from gpt_oss_server.cli.chat.remote import ServerApi

    query = "?conversation=true" if args.conversation else ""
    api = ServerApi(args.url, server_key(args))
    text = json.dumps(api.fetch(f"/responses/{words[0]}/trace{query}", _SECONDS), ensure_ascii=False)
    if args.output is None:
        console.out(text)
    else:
        Path(args.output).write_text(text + "\n", encoding="utf-8")
        console.err(f"Saved {args.output}. `gpt-oss-server trace show {args.output}` shows it.")
    return 0


def _read_trace(name: str) -> dict[str, Any]:
    from inference.backends.script_file import TRACE_FORMAT

    shown = "Standard input" if name == "-" else name
    try:
        trace = json.loads(console.read_input(name))
    except ValueError as error:
        raise CommandLineError(f"{shown} is not JSON: {error}.") from error
    if not isinstance(trace, dict) or trace.get("format") != TRACE_FORMAT or trace.get("version") != 1:
        raise CommandLineError(f"{shown} is not a trace of version 1, as `gpt-oss-server trace ID` saves it.")
    return trace
