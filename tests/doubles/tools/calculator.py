"""A hosted tool that adds numbers, and a toolset that is ready immediately."""

import asyncio

from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset, ToolsetMaker
from tools.tool import Declaration, Session, ToolCall, ToolOutput

ANSWER = "<|channel|>final<|message|>It is 4.<|return|>"


class Calculator:
    """A tool in place of python: it evaluates sums, and counts the calls of each session."""

    def __init__(self) -> None:
        self.closed_sessions = 0

    @property
    def declaration(self) -> Declaration:
        return Declaration("python", "Evaluates sums.")

    def open(self) -> Session:
        return CalculatorSession(self)

    async def close(self) -> None:
        pass


class CalculatorSession:
    def __init__(self, tool: Calculator) -> None:
        self._tool = tool
        self._calls = 0

    async def run(self, call: ToolCall) -> ToolOutput:
        self._calls += 1
        if call.arguments == "sleep":
            await asyncio.sleep(60)
        if call.arguments == "crash":
            raise RuntimeError("a defect of the tool")
        total = str(sum(int(part) for part in call.arguments.split("+")))
        text = f"{total} (call {self._calls})"
        return ToolOutput(text, details={"outputs": [{"type": "logs", "logs": text}]})

    async def close(self) -> None:
        self._tool.closed_sessions += 1


class Ready(ToolsetMaker):
    def __init__(self, toolset: Toolset) -> None:
        super().__init__(Settings(python="off", browser="off"))
        self._toolset = toolset

    async def _make(self) -> Toolset:
        return self._toolset
