"""Chat with a hosted tool that adds numbers."""

from __future__ import annotations

from typing import Any

from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.toolset.offered import Toolset
from tests.doubles.apis.chat_asking import service_of
from tests.doubles.serving import scripted
from tests.doubles.tools.calculator import Calculator, Ready
from tools.tool import Declaration, Function, ToolCall, ToolOutput
from tools.toolbox import Offer, Toolbox

CALL = "<|channel|>analysis to=python code<|message|>2+2<|call|>"


class Browser:
    """A browser that finds the same page for every query."""

    def __init__(self, title: str = "Cats") -> None:
        self.title = title
        self.options: list[dict[str, Any]] = []

    @property
    def declaration(self) -> Declaration:
        return Declaration("browser", "Searches.", (Function("search", "Searches.", {"type": "object"}),))

    def open(self) -> Browser:
        return self

    async def run(self, call: ToolCall) -> ToolOutput:
        self.options.append(dict(call.options))
        return ToolOutput("[0] Cats. L1: They purr.")

    def resolve(self, cursor: int, line: int | None) -> tuple[str, str] | None:
        return ("https://cats.example/", self.title) if cursor == 0 else None

    async def close(self) -> None:
        pass


def serving_tools(*turns: str, title: str = "Cats") -> tuple[ChatService, Toolbox]:
    toolbox = Toolbox([Offer(Calculator()), Offer(Browser(title))])
    return service_of(scripted(*turns), tools=Ready(Toolset(toolbox))), toolbox
