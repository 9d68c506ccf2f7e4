"""A tool whose behaviour a test decides, a clock that a test moves, and calls to any tool's session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset, ToolsetMaker
from tools.tool import Declaration, Function, Session, ToolCall, ToolOutput

Behaviour = Callable[[ToolCall], Awaitable[Any]]


async def call(
    session: Session, function: str, options: Mapping[str, Any] | None = None, **arguments: Any
) -> ToolOutput:
    return await session.run(ToolCall(function, json.dumps(arguments), options or {}))


async def failure(
    session: Session, function: str, options: Mapping[str, Any] | None = None, **arguments: Any
) -> str:
    """What the model reads of a call that fails."""
    output = await call(session, function, options, **arguments)
    assert output.failed, output.text
    return output.text


class Scripted:
    opened = closed_sessions = closed = at_once = most_at_once = 0

    def __init__(
        self, behaviour: Behaviour, namespace: str = "notes", functions: tuple[str, ...] = ("add",)
    ) -> None:
        self.declaration = Declaration(namespace, None, tuple(Function(name) for name in functions))
        self.behaviour = behaviour

    def open(self) -> ScriptedSession:
        self.opened += 1
        return ScriptedSession(self, self.opened)

    async def close(self) -> None:
        self.closed += 1


class ScriptedSession:
    def __init__(self, tool: Scripted, number: int) -> None:
        self.tool = tool
        self.number = number

    async def run(self, call: ToolCall) -> Any:
        self.tool.at_once += 1
        self.tool.most_at_once = max(self.tool.most_at_once, self.tool.at_once)
        try:
            return await self.tool.behaviour(call)
        finally:
            self.tool.at_once -= 1

    async def close(self) -> None:
        self.tool.closed_sessions += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def echoes(call: ToolCall) -> ToolOutput:
    return ToolOutput(f"{call.function}({call.arguments})", details=dict(call.options))


async def sleeps(call: ToolCall) -> ToolOutput:
    await asyncio.sleep(30)
    return ToolOutput("late")


def fails_with(error: BaseException) -> Behaviour:
    async def behaviour(call: ToolCall) -> ToolOutput:
        raise error

    return behaviour


ANSWER = "<|channel|>final<|message|>It is 4.<|return|>"


class Calculator:
    """A tool in place of python: it evaluates sums, and counts the calls of each session."""

    closed_sessions = 0
    declaration = Declaration("python", "Evaluates sums.")

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
