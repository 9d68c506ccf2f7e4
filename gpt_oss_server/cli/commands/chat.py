"""Talk with a model in the terminal. It runs the same code as the server, without HTTP.

Reasoning and tool output are dimmed. Ctrl-C stops an answer, Ctrl-D quits. Lines can also be piped in: each
one is a turn, or answers the question about a patch.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpt_oss_server.cli.commands import chat_tools
from gpt_oss_server.cli.commands.loading import load_engine
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.response_view import Terminal
from gpt_oss_server.settings import Settings, add_flags
from tools.outputs import encodable

if TYPE_CHECKING:
    from gpt_oss_server.cli.terminal.patching import Patcher
    from gpt_oss_server.responses.service import ResponsesService

Item = dict[str, Any]
PATCH = "apply_patch"

EXAMPLES = """\
examples:
  gpt-oss-server chat
  gpt-oss-server chat --model openai/gpt-oss-20b --effort high
  echo "What is Harmony?" | gpt-oss-server chat --no-reasoning
  gpt-oss-server chat -b --browser local:./docs
  gpt-oss-server chat -p -a

in the chat:
  /new  /effort low|medium|high  /help  /quit"""

HELP = """\
/new                     start a new conversation
/effort low|medium|high  how much to reason from now on
/quit, Ctrl-D            quit
Ctrl-C                   stop the answer"""

EFFORTS = ("low", "medium", "high")
SETTINGS = (
    "model",
    "device",
    "context",
    "default_max_output_tokens",
    "repetition_limit",
    "identity",
    *chat_tools.SETTINGS,
    "log_level",
)
_MOST_CALLS = 100  # in one answer; a model that makes more runs in circles, perhaps unwatched


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--effort", choices=EFFORTS, help="how much the model reasons (default: the server's)"
    )
    parser.add_argument("--instructions", metavar="TEXT", help="the developer's instructions to the model")
    parser.add_argument(
        "--reasoning",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show the reasoning (default)",
    )
    chat_tools.add_arguments(parser)
    add_flags(parser, only=SETTINGS)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.responses.service import ResponsesService
    from gpt_oss_server.serving.served import Served

    # One runner, so that all turns share an event loop, and Ctrl-C cancels the turn and not the chat.
    with asyncio.Runner() as runner:
        tools = chat_tools.toolset_maker(args, settings)
        try:
            if tools is not None:
                runner.run(chat_tools.check(tools, args))
            engine = load_engine(settings)
        except BaseException:
            if tools is not None:
                runner.run(tools.close())
            raise
        service = ResponsesService(Served(engine, settings, tools=tools))
        try:
            Chat(service, runner, args, settings).talk(engine.info.name)
        finally:
            runner.run(service.close())  # the tools' kernels too, in the loop that started them
    return 0


class Chat:
    """The conversation. The store holds it; this object holds only the id of the last response."""

    def __init__(
        self,
        service: ResponsesService,
        runner: asyncio.Runner,
        args: argparse.Namespace,
        settings: Settings,
    ) -> None:
        self._service = service
        self._runner = runner
        self._effort: str = args.effort or settings.default_reasoning_effort
        self._instructions: str | None = args.instructions and encodable(args.instructions)
        self._tools = chat_tools.declared(args)
        self._previous: str | None = None
        self._unsent: list[Item] = []  # outputs of calls that the model has not seen yet
        self._interactive = sys.stdin.isatty()
        colour = console.colourful(sys.stdout)
        self._prompt = console.styled("> ", console.BOLD, on=colour)
        self._terminal = Terminal(
            _write,
            colour=colour,
            reasoning=args.reasoning,
            shown_otherwise=(PATCH,),
            guarded=sys.stdout.isatty(),
        )
        self._patcher = self._make_patcher(colour) if args.apply_patch else None

    def _make_patcher(self, colour: bool) -> Patcher:
        from gpt_oss_server.cli.terminal.patching import Patcher

        return Patcher(Path.cwd(), write=_write, note=self._terminal.note, ask=self._ask, colour=colour)

    def talk(self, model: str) -> None:
        if self._interactive:
            if _edits_lines():
                self._prompt = console.uncounted(self._prompt)
            console.out(f"{model}. /help lists the commands, Ctrl-D quits.")
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
        """The next line, or None when the user quits."""
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
                console.out("  (Ctrl-D quits)")

    def _obey(self, words: list[str]) -> None:
        match words:
            case ["/new"]:
                self._previous, self._unsent = None, []
                self._terminal.note("a new conversation")
            case ["/effort", effort] if effort in EFFORTS:
                self._effort = effort
                self._terminal.note(f"effort: {effort}")
            case ["/help"]:
                console.out(HELP)
            case _:
                self._terminal.note(f"no such command: {' '.join(words)}; /help lists them")

    def _ask(self, question: str) -> str | None:
        if self._interactive:
            try:
                return input(question)
            except EOFError:
                console.out()
                return None
        console.out(question)
        return sys.stdin.readline() or None

    def _answer(self, line: str) -> None:
        from gpt_oss_server.errors import ApiError

        items: list[Item] = [*self._unsent, {"type": "message", "role": "user", "content": line}]
        try:
            for _ in range(_MOST_CALLS):
                response = self._runner.run(self._turn(items))
                # A failed response does not join the conversation: the next turn continues from the one
                # before it.
                if response["status"] == "failed":
                    return
                self._previous, self._unsent = response["id"], []
                if response["status"] == "completed":
                    self._make_calls(response["output"])
                if not self._unsent:
                    return
                items = self._unsent
            self._terminal.note(f"stopped after {_MOST_CALLS} calls; write anything to continue")
        except KeyboardInterrupt:
            self._terminal.note("stopped")
        except ApiError as error:
            self._terminal.note(error.message)

    def _make_calls(self, output: Sequence[Item]) -> None:
        """Makes the calls outside the event loop, where Ctrl-C reaches the question that the user answers."""
        calls = [item for item in output if item["type"] == "function_call"]
        # Every call gets an output, whatever happens: a call without one would confuse the model later.
        self._unsent = [_output_of(call, "The user stopped this call before it was made.") for call in calls]
        for index, call in enumerate(calls):
            self._unsent[index] = _output_of(call, self._made(call))

    def _made(self, call: Item) -> str:
        if call["name"] == PATCH and self._patcher is not None:
            return self._patcher.call(call["arguments"])
        return f"There is no function {call['name']!r} here. Answer without it."

    async def _turn(self, items: list[Item]) -> Item:
        run = await self._service.start(self._request(items))
        async with aclosing(run.events()) as batches:  # closing stops the model, on Ctrl-C too
            async for batch in batches:
                for event in batch:
                    self._terminal.show(event)
        return run.response

    def _request(self, items: list[Item]) -> Item:
        body: Item = {
            "input": items,
            "reasoning": {"effort": self._effort},
            "tools": self._tools,
            "include": chat_tools.INCLUDE,
            "stream": True,
            "store": True,
        }
        if self._instructions:
            body["instructions"] = self._instructions
        if self._previous:
            body["previous_response_id"] = self._previous
        return body


def _output_of(call: Item, output: str) -> Item:
    return {"type": "function_call_output", "call_id": call["call_id"], "output": output}


def _write(text: str) -> None:
    console.out(text, end="")


def _edits_lines() -> bool:
    """Whether lines have editing and a history, which needs a Python built with readline."""
    try:
        import readline  # noqa: F401 - importing it makes input() edit lines
    except ImportError:
        return False
    return True
