"""Show the exact prompt of a request, as tokens and text. No model is loaded."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CYAN, CommandLineError, styled
from gpt_oss_server.errors import InvalidJson
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo, InferenceError, Sampling, Step

if TYPE_CHECKING:
    from gpt_oss_server.caller.caller import Caller
    from gpt_oss_server.runs.served import Served
    from gpt_oss_server.toolset.offered import ToolsetMaker

EXAMPLES = """\
examples:
  gpt-oss-server render request.json
  echo '{"input": "Hello"}' | gpt-oss-server render -
  gpt-oss-server render request.json --tokens

FILE holds the body of a POST /v1/responses, /v1/chat/completions or /v1/messages. The prompt
goes to standard output, the count to standard error. --tokens quotes text, so that spaces are visible, and
leaves special tokens bare; a terminal colours them."""

SETTINGS = (
    "default_reasoning_effort",
    "identity",
    "call_form",
    "mcp",
    "tool_server",
    "allow_private_hosts",
    "log_level",
)


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("file", metavar="FILE", help="a request as JSON; - reads standard input")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print {"tokens": […], "text": "…"}')
    form.add_argument("--tokens", action="store_true", help="print each token: its id and its text")
    add_flags(parser, only=SETTINGS, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.caller.caller import LOCAL
    from gpt_oss_server.runs.served import Served

    settings = replace(settings, served_model_name=("*",))
    served = Served(PromptsOnly(), settings, tools=every_tool(settings))
    tokens = asyncio.run(rendered(served, LOCAL, read_request(args.file)))
    decode, colour = served.models.first.encoding.decode, console.colourful(sys.stdout)
    if args.json:
        console.out(json.dumps({"tokens": tokens, "text": decode(tokens)}, ensure_ascii=False))
    elif args.tokens:
        for token in tokens:
            console.out(styled(token_line(token), CYAN, on=colour and is_special(token)))
    else:  # not the whole text: a message may spell special tokens
        pieces = itertools.groupby(tokens, is_special)
        texts = (styled(decode(list(piece)), CYAN, on=colour and special) for special, piece in pieces)
        console.out("".join(texts))
    console.err(f"{len(tokens)} tokens")
    return 0


def is_special(token: int) -> bool:
    from gpt_oss_server.harmony.encoding import FIRST_SPECIAL

    return token >= FIRST_SPECIAL


def token_line(token: int) -> str:
    """The id and the text: in quotes, so that spaces are visible, or bare for a special token."""
    from gpt_oss_server.harmony.encoding import load_encoding

    encoding = load_encoding()
    if is_special(token):
        return f"{token:>6}  {encoding.decode([token])}"
    raw = encoding.token_bytes([token])
    try:
        return f"{token:>6}  {json.dumps(raw.decode('utf-8'), ensure_ascii=False)}"
    except UnicodeDecodeError:  # a part of a character
        return f"{token:>6}  {raw!r}"


async def rendered(served: Served, caller: Caller, request: dict[str, Any]) -> list[int]:
    """The prompt of a request of any API, which differ in where the conversation and its tools are."""
    from gpt_oss_server.apis.chat.service import ChatService
    from gpt_oss_server.apis.messages.service import MessagesService
    from gpt_oss_server.apis.responses.service import ResponsesService

    service = ResponsesService(served)
    try:
        if "messages" not in request or "input" in request:
            return list((await service.render(caller, request)).tokens)
        tools = [tool for tool in request.get("tools") or () if isinstance(tool, dict)]
        if "system" in request or any("input_schema" in tool for tool in tools):
            return await MessagesService(service).prompt(caller, request)
        return await ChatService(served).prompt(caller, request)
    finally:
        await service.close()


def every_tool(settings: Settings) -> ToolsetMaker:
    """Declares the browser and Python as any server does. Neither runs here."""
    from gpt_oss_server.items.code_interpreter import CodeInterpreter
    from gpt_oss_server.items.table import Kinds
    from gpt_oss_server.items.web_search import WebSearch
    from gpt_oss_server.toolset.offered import ToolsetMaker
    from gpt_oss_server.toolset.outside import known_kinds
    from tools.browser.backends.local import LocalBackend
    from tools.python.sandboxes.bounds.limits import SandboxLimits
    from tools.python.sandboxes.unsafe_local import UnsafeLocal

    sandbox = UnsafeLocal(SandboxLimits(), interpreter=sys.executable)
    kinds = known_kinds(own=Kinds.of(WebSearch(LocalBackend(Path())), CodeInterpreter(sandbox)))
    return ToolsetMaker(settings, kinds)


def read_request(name: str) -> dict[str, Any]:
    """Reads a body as the server does."""
    from gpt_oss_server.http.body import decode_json

    shown = "Standard input" if name == "-" else name
    try:
        body = decode_json(console.read_input(name))
    except InvalidJson as error:
        raise CommandLineError(f"{shown} is not a request. {error.message}") from error
    if not isinstance(body, dict):
        raise CommandLineError(f"{shown} must hold a JSON object, the body of a request.")
    return body


class PromptsOnly:
    """Replaces an engine: making a prompt needs only the engine's context length."""

    def __init__(self, info: EngineInfo | None = None) -> None:
        self.info = info or EngineInfo(name="render", context_length=131_072)

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        raise InferenceError("`render` makes prompts and does not generate.")

    async def close(self) -> None:
        """Nothing to release."""
