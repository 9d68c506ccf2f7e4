"""Talk with a model in the terminal: one that runs here, or, with --url, one on a running server.

A question on the command line gets its answer, and the command ends; text that is piped in is then part of
the question, and `-` is a question that is piped in whole. Without a question, each piped line is a turn, or
answers a question of the chat's own. Reasoning and tool output are dimmed. Ctrl-C stops an answer, Ctrl-D
quits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from gpt_oss_server.cli.chat import tools as chat_tools
from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.cli.server.start import check_context, load_engine
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import EFFORTS, Settings
from tools.tool import encodable

if TYPE_CHECKING:
    from gpt_oss_server.cli.chat.reader import Reader
    from gpt_oss_server.cli.chat.talker import Talker

EXAMPLES = """\
examples:
  gpt-oss-server chat
  gpt-oss-server chat openai/gpt-oss-20b --effort high
  gpt-oss-server chat "What is Harmony?"
  gpt-oss-server chat "Summarise this." --no-reasoning < notes.txt
  gpt-oss-server chat --url http://127.0.0.1:8000
  gpt-oss-server chat -b --browser local:./docs
  gpt-oss-server chat -p

in the chat:
  /help lists the commands"""

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
KEY_VARIABLE = "GPT_OSS_SERVER_API_KEY"
_QUESTION = (
    "the model, as with --model, if the first word names one; then a question, or - to read it from standard "
    "input"
)


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    add, switch = parser.add_argument, argparse.BooleanOptionalAction
    add("question", nargs="*", metavar="WORD", help=_QUESTION)
    add("--url", metavar="URL", help="talk with a running server instead of loading a model")
    key = f"the key for --url; better in the variable {KEY_VARIABLE}"
    add("--api-key", dest="url_key", metavar="KEY", help=key)
    effort = "how much the model reasons (default: the server's)"
    add("--effort", "--reasoning-effort", choices=EFFORTS, help=effort)
    add("--instructions", metavar="TEXT", help="the developer's instructions to the model")
    add("--reasoning", action=switch, default=True, help="show the reasoning (default)")
    history = "keep what you write in a file of yours, for the arrow keys (default)"
    add("--history", action=switch, default=True, help=history)
    chat_tools.add_arguments(parser)
    add_flags(parser, only=SETTINGS, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.chat.conversation import Conversation
    from gpt_oss_server.cli.chat.loop import Loop

    question = _question(args.question)
    reader = _reader(args)
    with _talker(args, settings) as talker:
        conversation = Conversation(
            talker,
            effort=args.effort or settings.default_reasoning_effort,
            instructions=args.instructions and encodable(args.instructions),
            shows_reasoning=args.reasoning,
            tools=chat_tools.declared(args),
        )
        if question is not None:
            return 0 if conversation.answer(question) else 1
        if reader.interactive:
            greeting = f"{talker.introduction}. /help lists the commands, Ctrl-D quits."
            console.out(console.hanging("", greeting))
        Loop(conversation, reader).talk()
    return 0


def _question(words: list[str]) -> str | None:
    """The question on the command line, with what is piped in; None for a conversation."""
    if not words:
        return None
    text = "" if words == ["-"] else encodable(" ".join(words))
    if words == ["-"] or not sys.stdin.isatty():
        piped = sys.stdin.read().strip("\n")
        text = "\n\n".join(filter(None, (text, piped)))
    if not text.strip():
        raise CommandLineError("The question is empty.")
    return text


def _reader(args: argparse.Namespace) -> Reader:
    from gpt_oss_server.cli.chat.reader import History, Reader
    from gpt_oss_server.stores.sealing import state_folder

    keeps = args.history and sys.stdin.isatty()
    history = History(state_folder() / "chat-messages") if keeps else None
    return Reader(console.styled("> ", console.BOLD, on=console.colourful(sys.stdout)), history)


@contextmanager
def _talker(args: argparse.Namespace, settings: Settings) -> Iterator[Talker]:
    if args.url:
        from gpt_oss_server.cli.chat.remote import RemoteTalker

        with closing(RemoteTalker(args.url, server_key(args), getattr(args, "model", None))) as remote:
            yield remote
        return
    if args.url_key:
        raise CommandLineError("--api-key is the key of a server; name it with --url.")
    from gpt_oss_server.apis.responses.service import ResponsesService
    from gpt_oss_server.cli.chat.talker import LocalTalker
    from gpt_oss_server.runs.served import Served

    with asyncio.Runner() as runner:
        tools = chat_tools.toolset_maker(args, settings)
        try:
            if tools is not None:
                runner.run(chat_tools.check(tools, args))
            check_context(settings.context, settings)
            engine = load_engine(settings)
        except BaseException:
            if tools is not None:
                runner.run(tools.close())
            raise
        local = LocalTalker(ResponsesService(Served(engine, settings, tools=tools)), runner)
        with closing(local):
            check_context(engine.info.context_length, settings)
            yield local


def add_server(parser: argparse.ArgumentParser) -> None:
    """The flags of a command that asks a running server."""
    parser.add_argument("--url", default="http://127.0.0.1:8000", metavar="URL", help="the server's address")
    key = "the key that the server requires, if any"
    parser.add_argument("--api-key", dest="url_key", metavar="KEY", help=key)


def server_key(args: argparse.Namespace) -> str | None:
    key: str | None = args.url_key or os.environ.get(KEY_VARIABLE)
    return key
