"""Serve the browser or Python to other programs over MCP: on standard input and output, or over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings
from tools.extras import how_to_install

if TYPE_CHECKING:
    from tools.tool import Tool

EXAMPLES = """\
examples:
  gpt-oss-server mcp python
  gpt-oss-server mcp browser --browser local:./docs
  gpt-oss-server mcp python --http --port 8001
  gpt-oss-server serve --tool-server http://127.0.0.1:8001/mcp

Without --http, an MCP client starts this command and talks to it over standard input and output."""

SETTINGS = ("browser", "python", "python_image", "python_timeout", "allow_private_hosts", "log_level")
_PORT = 8001  # next to the API server's port
_OFF = {
    "browser": "The browser has nowhere to search. Give --browser local:DIR for a folder of documents, "
    "--browser searxng:URL, or --browser exa with EXA_API_KEY set.",
    "python": "--python off disables Python. Leave it out, or use --python auto.",
}


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("tool", choices=tuple(_OFF), help="the tool to serve")
    parser.add_argument("--http", action="store_true", help="serve over HTTP, at /mcp, instead of stdio")
    # Not the settings `host` and `port`: those belong to the API server, which may run at the same time.
    parser.add_argument("--host", dest="at", default="127.0.0.1", metavar="HOST", help="default: 127.0.0.1")
    parser.add_argument("--port", dest="at_port", type=int, metavar="PORT", help=f"default: {_PORT}")
    add_flags(parser, only=SETTINGS, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.server.http_server import http_url, listen
    from gpt_oss_server.observe.logs.setup import set_up_logging

    set_up_logging(settings)
    port = _PORT if args.at_port is None else args.at_port
    if not args.http and (args.at_port is not None or args.at != "127.0.0.1"):
        raise CommandLineError("--host and --port need --http; without it, standard input is served.")
    try:
        from tools.mcp.serve import serve_http, serve_stdio

        tool = asyncio.run(_tool(args.tool, settings))
    except ImportError as error:
        raise CommandLineError(how_to_install(error)) from error
    if not args.http:
        typed = " An MCP client starts this command; Ctrl-D ends it." if sys.stdin.isatty() else ""
        console.err(f"Serving {args.tool} over MCP on standard input and output.{typed}")
        asyncio.run(serve_stdio(tool))
        return 0
    listener = listen(args.at, port)
    listener.listen()  # a client that connects before the server runs waits for it
    port = listener.getsockname()[1]
    console.err(f"Serving {args.tool} over MCP at {http_url(args.at, port)}/mcp. Ctrl-C stops it.")
    asyncio.run(serve_http(tool, args.at, port, listener))
    return 0


async def _tool(name: str, settings: Settings) -> Tool:
    from gpt_oss_server.cli.server.tools import hosted_tool
    from tools.tool import ToolUnavailable

    try:
        tool = await hosted_tool(name, settings)
    except (ToolUnavailable, ValueError) as error:
        raise CommandLineError(str(error)) from error
    if tool is None:
        raise CommandLineError(_OFF[name])
    return tool
