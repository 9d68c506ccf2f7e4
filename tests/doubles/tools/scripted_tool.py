"""A tool whose behaviour a test decides, a clock that a test moves, and calls to any tool's session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

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
    """A tool whose calls do what a test prescribes, and which records what was opened and closed."""

    def __init__(
        self, behaviour: Behaviour, namespace: str = "notes", functions: tuple[str, ...] = ("add",)
    ) -> None:
        self.declaration = Declaration(namespace, None, tuple(Function(name) for name in functions))
        self.behaviour = behaviour
        self.opened = 0
        self.closed_sessions = 0
        self.closed = 0
        self.at_once = 0
        self.most_at_once = 0

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
