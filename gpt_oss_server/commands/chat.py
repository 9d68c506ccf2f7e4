"""Talk with a model in the terminal: the same path as the server's, without HTTP.

Reasoning is shown dimmed. Ctrl-C stops an answer, Ctrl-D leaves. Lines can also be piped in: each is a turn.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from gpt_oss_server import console
from gpt_oss_server.chat_terminal import Terminal
from gpt_oss_server.loading import load_engine
from gpt_oss_server.settings import Settings, add_flags

if TYPE_CHECKING:
    from gpt_oss_server.responses.service import ResponsesService

EXAMPLES = """\
examples:
  gpt-oss-server chat
  gpt-oss-server chat --model openai/gpt-oss-20b --effort high
  echo "What is Harmony?" | gpt-oss-server chat --no-reasoning

in the chat:
  /new  /effort low|medium|high  /help  /quit"""

HELP = """\
/new                     forget what was said
/effort low|medium|high  how much to reason from now on
/quit, Ctrl-D            leave
Ctrl-C                   stop the answer"""

EFFORTS = ("low", "medium", "high")
SETTINGS = ("model", "device", "context", "default_max_output_tokens", "identity", "log_level")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--effort", choices=EFFORTS, help="how much the model reasons (default: the server's)"
    )
    parser.add_argument("--instructions", metavar="TEXT", help="what the developer tells the model")
    parser.add_argument(
        "--reasoning",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show the reasoning (default)",
    )
    add_flags(parser, only=SETTINGS)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.responses.service import ResponsesService

    engine = load_engine(settings)
    effort = args.effort or settings.default_reasoning_effort
    # One runner, so that every turn has the same event loop; and on Ctrl-C it cancels the turn, not the chat.
    with asyncio.Runner() as runner:
        chat = Chat(ResponsesService(engine, settings), runner, effort, args.instructions, args.reasoning)
        try:
            chat.talk(engine.info.name)
        finally:
            runner.run(engine.close())
    return 0


class Chat:
    """The conversation: what was said is in the store, here is only the id of the last answer."""

    def __init__(
        self,
        service: ResponsesService,
        runner: asyncio.Runner,
        effort: str,
        instructions: str | None,
        reasoning: bool,
    ) -> None:
        self._service = service
        self._runner = runner
        self._effort = effort
        self._instructions = instructions
        self._previous: str | None = None
        self._interactive = sys.stdin.isatty()
        colour = console.colourful(sys.stdout)
        self._prompt = console.styled("> ", console.BOLD, on=colour)
        self._terminal = Terminal(lambda text: console.out(text, end=""), colour=colour, reasoning=reasoning)

    def talk(self, model: str) -> None:
        if self._interactive:
            _remember_lines()
            console.out(f"{model}. /help tells the commands, Ctrl-D leaves.")
        while (line := self._read()) is not None:
            words = line.split()
            if not words:
                continue
            if words[0] in ("/quit", "/exit"):
                return
            if words[0].startswith("/"):
                self._obey(words)
            else:
                self._answer(line)

    def _read(self) -> str | None:
        """The next line; None when the user leaves."""
        if not self._interactive:
            line = sys.stdin.readline()
            return line.rstrip("\n") if line else None
        while True:
            try:
                return input(self._prompt)
            except EOFError:
                console.out()
                return None
            except KeyboardInterrupt:
                console.out("  (Ctrl-D leaves)")

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["/new"]:
                self._previous = None
                self._terminal.note("a new conversation")
            case ["/effort", effort] if effort in EFFORTS:
                self._effort = effort
                self._terminal.note(f"effort: {effort}")
            case ["/help"]:
                console.out(HELP)
            case _:
                self._terminal.note(f"no such command: {' '.join(words)}; /help tells them")

    def _answer(self, line: str) -> None:
        from gpt_oss_server.errors import ApiError

        try:
            self._previous = self._runner.run(self._turn(line))
        except KeyboardInterrupt:
            self._terminal.note("stopped")
        except ApiError as error:
            self._terminal.note(error.message)

    async def _turn(self, line: str) -> str | None:
        run = await self._service.start(self._request(line))
        async with aclosing(run.events()) as batches:  # closing, also on Ctrl-C, is what stops the model
            async for batch in batches:
                for event in batch:
                    self._terminal.show(event)
        # A failed answer is no part of the conversation: the next turn goes on from the one before.
        return self._previous if run.response["status"] == "failed" else run.response["id"]

    def _request(self, line: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "input": line,
            "reasoning": {"effort": self._effort},
            "stream": True,
            "store": True,
        }
        if self._instructions:
            body["instructions"] = self._instructions
        if self._previous:
            body["previous_response_id"] = self._previous
        return body


def _remember_lines() -> None:
    """Editing and the history of lines, where Python was built with readline."""
    with suppress(ImportError):
        import readline  # noqa: F401 - importing it is what makes input() edit
