"""Responses in-process, with predictable ids and clock: every stream is checked event by event."""

from pathlib import Path
from typing import Any

from gpt_oss_server.apis.conversations.conversations import Conversations
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import ToolsetMaker
from inference.engine import Engine
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted

CLOCK = 1.7e9
NEXT = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>{}<|return|>"


def call(recipient: str, body: str, *, kind: str = " <|constrain|>json", channel: str = "commentary") -> str:
    return f"<|channel|>{channel} to={recipient}{kind}<|message|>{body}<|call|>"


class Asking:
    """A service that keeps the `events` of its last request."""

    def __init__(self, *turns: str, engine: Engine | None = None, **options: Any) -> None:
        known: dict[str, Any] = {"encoding": load_encoding(), "ids": CountingIds(), "clock": lambda: CLOCK}
        self.service = responses_service(engine or scripted(*turns), **known, **options)

    async def __call__(self, **body: Any) -> dict[str, Any]:
        run = await self.service.start(LOCAL, {"input": "Hi", **body})
        self.events = [event async for batch in run for event in batch]
        return check_stream(self.events, ends_cut_calls=self.service.served.settings.end_cut_calls)

    @property
    def items_events(self) -> list[dict[str, Any]]:
        """The events, with each response reduced to its status and output."""
        found = [dict(event) for event in self.events]
        for event in found:
            if response := event.get("response"):
                event["response"] = {key: response[key] for key in ("status", "output")}
        return found

    async def prompt(self, **body: Any) -> str:
        return (await self.service.render(LOCAL, {"input": "Hi", **body})).text


def responses_service(engine: Engine, settings: Settings | None = None, **options: Any) -> ResponsesService:
    return ResponsesService(Served(engine, settings, **options))


def browsing_service(folder: Path, engine: Engine, **options: Any) -> ResponsesService:
    """A service whose browser searches this folder, in which a page about a fjord is written."""
    (folder / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")
    settings = Settings(browser=f"local:{folder}", python="off")
    return responses_service(engine, settings, tools=ToolsetMaker(settings), **options)


def conversations_of(service: ResponsesService) -> Conversations:
    return Conversations(service.served.work(LOCAL))
