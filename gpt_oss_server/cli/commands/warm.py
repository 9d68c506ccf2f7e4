"""Read the prompt of a request into the cache on disk, where servers with the same --cache-dir find it."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from gpt_oss_server.cli.commands.render import PromptsOnly, every_tool, read_request, rendered
from gpt_oss_server.cli.launch.clients import CLIENTS, CONTEXT, served_name
from gpt_oss_server.cli.line.flags import add_flags, add_model
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

EXAMPLES = """\
examples:
  gpt-oss-server warm request.json openai/gpt-oss-20b --cache-dir ~/prompts
  gpt-oss-server warm claude openai/gpt-oss-20b --cache-dir ~/prompts
  gpt-oss-server warm request.json --owner alice --cache-dir ~/prompts
  gpt-oss-server warm --forget alice --cache-dir ~/prompts

FILE holds the body of a POST /v1/responses, /v1/chat/completions or /v1/messages. In its place, the name of a
client that `launch` knows is what that client sends first from this folder. The prompt is deleted after all
others. Use the settings of the server: they are part of a prompt, and so is the day's date."""

FLAGS = ("model", "device", "context", "weights", "kv_dtype", "cache_dir", "cache_disk")
PROMPT = ("default_reasoning_effort", "identity", "call_form", "mcp", "tool_server", "log_level")


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    about = "a request as JSON, or a client; - reads standard input"
    parser.add_argument("file", nargs="?", metavar="FILE", help=about)
    add_model(parser)
    parser.add_argument("--owner", metavar="OWNER", default="", help="whose key will send it")
    parser.add_argument("--forget", metavar="OWNER", help="delete what the cache has of an owner instead")
    add_flags(parser, only=(*FLAGS, *PROMPT), everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from inference.paths import expanded_path

    if settings.cache_dir is None:
        raise CommandLineError("Name the cache: gpt-oss-server warm FILE --cache-dir FOLDER")
    if args.forget is not None:
        from inference.local.tiers.packs import delete_blocks_of

        count = delete_blocks_of(expanded_path(settings.cache_dir), args.forget)
        console.err(f"Deleted {count} packs of {args.forget or 'requests without a key'}.")
        return 0
    if args.file is None:
        raise CommandLineError("Name a request or a client: gpt-oss-server warm FILE --cache-dir FOLDER")
    tokens = asyncio.run(_warm(_request(args.file, settings), args.owner, settings))
    console.err(f"{tokens:,} tokens of {args.file} are in {Path(settings.cache_dir)}.")
    return 0


def _request(name: str, settings: Settings) -> dict[str, object]:
    if (client := CLIENTS.get(name)) is None:
        return read_request(name)
    from gpt_oss_server.cli.launch.first_request import first_request

    return first_request(client, served_name(settings), settings.context or CONTEXT)


async def _warm(request: dict[str, object], owner: str, settings: Settings) -> int:
    from gpt_oss_server.caller.access import Access
    from gpt_oss_server.caller.caller import LOCAL
    from gpt_oss_server.cli.server.start import load_engine
    from gpt_oss_server.runs.served import Served
    from gpt_oss_server.turns.prompt import cache_salt
    from inference.engine import Sampling
    from inference.local.engine import LocalEngine

    engine = load_engine(settings)
    assert isinstance(engine, LocalEngine), "others refuse --cache-dir"
    try:
        any_name = replace(settings, served_model_name=("*",))
        served = Served(PromptsOnly(engine.info), any_name, tools=every_tool(settings))
        caller = LOCAL.with_key(Access(owner=owner)) if owner else LOCAL
        tokens = await rendered(served, caller, request)
        own = request.get("cache_salt")
        salt = cache_salt(owner, own if isinstance(own, str) else None)
        async with aclosing(engine.generate(tokens, Sampling(max_tokens=0, cache_salt=salt))) as steps:
            async for _ in steps:
                pass
        engine.pin(tokens, salt)
    finally:
        await engine.close()  # writes what waits
    return len(tokens)
