"""Show the exact prompt of a request, as tokens and text. No model is loaded."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.errors import CommandLineError
from gpt_oss_server.errors import InvalidJson
from gpt_oss_server.http.body import decode_json
from gpt_oss_server.settings import Settings, add_flags
from inference.engine import EngineInfo, InferenceError, Sampling, Step

if TYPE_CHECKING:
    from gpt_oss_server.responses.service import Rendered, ResponsesService
    from gpt_oss_server.tooling.toolset import ToolsetMaker

EXAMPLES = """\
examples:
  gpt-oss-server render request.json
  echo '{"input": "Hello"}' | gpt-oss-server render -
  gpt-oss-server render request.json --tokens

FILE holds the body of a POST /v1/responses. The text goes to standard output, the count to standard error."""

SETTINGS = (
    "default_reasoning_effort",
    "identity",
    "call_form",
    "mcp",
    "tool_server",
    "allow_private_hosts",
    "log_level",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a request as JSON; - reads standard input")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help='print {"tokens": […], "text": "…"}')
    form.add_argument("--tokens", action="store_true", help="print each token: its id and its text")
    add_flags(parser, only=SETTINGS)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.responses.service import ResponsesService
    from gpt_oss_server.serving.served import Served

    settings = replace(settings, served_model_name=("*",))
    service = ResponsesService(Served(PromptsOnly(), settings, tools=_tools(settings)))
    rendered = asyncio.run(_rendered(service, read_request(args.file)))
    tokens, text = list(rendered.tokens), rendered.text
    if args.json:
        console.out(json.dumps({"tokens": tokens, "text": text}, ensure_ascii=False))
    elif args.tokens:
        for token in tokens:
            console.out(f"{token:>6}  {_text_of(token)}")
    else:
        console.out(text)
    console.err(f"{len(tokens)} tokens")
    return 0


async def _rendered(service: ResponsesService, request: dict[str, Any]) -> Rendered:
    try:
        return await service.render(request)
    finally:
        await service.close()


def _tools(settings: Settings) -> ToolsetMaker:
    """Declares the browser and Python as any server does. Neither runs here."""
    from gpt_oss_server.hosted.code_interpreter import CodeInterpreter
    from gpt_oss_server.hosted.web_search import WebSearch
    from gpt_oss_server.tooling.toolset import ToolsetMaker
    from tools.browser.backends.local import LocalBackend
    from tools.python.sandboxes.bounds.limits import SandboxLimits
    from tools.python.sandboxes.unsafe_local import UnsafeLocal

    sandbox = UnsafeLocal(SandboxLimits(), interpreter=sys.executable)
    return ToolsetMaker(settings, [WebSearch(LocalBackend(Path())), CodeInterpreter(sandbox)])


def read_request(name: str) -> dict[str, Any]:
    """Reads a body as the server does."""
    try:
        body = decode_json(sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes())
    except OSError as error:
        raise CommandLineError(f"Cannot read {name}: {error.strerror}.") from error
    except InvalidJson as error:
        raise CommandLineError(f"{name} is not JSON: {error.message}") from error
    if not isinstance(body, dict):
        raise CommandLineError(f"{name} must hold a JSON object, the body of a request.")
    return body


class PromptsOnly:
    """Replaces an engine: making a prompt needs only the engine's context length."""

    info = EngineInfo(name="render", context_length=131_072)

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        raise InferenceError("`render` makes prompts and does not generate.")

    async def close(self) -> None:
        """Nothing to release."""


def _text_of(token: int) -> str:
    from gpt_oss_server.harmony.encoding import load_encoding

    return repr(load_encoding().decode([token]))[1:-1]
