"""What a tool is: calls of the model in, text for the model out.

A `Tool` is made once by the server. For each conversation it opens a `Session`, which holds what the tool
remembers between calls (pages and cursors, a kernel). A call that goes wrong is an answer like any other: the
model reads what happened. Nothing here knows of the server, of Harmony's tokens or of inference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a tool as the model is told of it."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool as the model is told of it. Without functions it is called by its bare name (`python`)."""

    namespace: str
    description: str | None = None
    functions: tuple[Function, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it. `function` is "" for a tool that is called by its bare name."""

    function: str
    arguments: str
    options: Mapping[str, Any] = field(default_factory=dict)  # the request's settings of this tool


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What the model reads, whether the call failed, and what the API's item shows of it.

    `details` has the form that the tool documents (the browser's action and sources, python's outputs).
    """

    text: str
    failed: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)


class Session(Protocol):
    """One conversation's use of one tool. Calls come one at a time."""

    async def run(self, call: ToolCall) -> ToolOutput:
        """Never raises for what the model wrote or the world answered. Cancelling it stops the work."""
        ...

    async def close(self) -> None: ...


class Tool(Protocol):
    @property
    def declaration(self) -> Declaration: ...

    def open(self) -> Session:
        """A fresh session; cheap, so that what is costly waits for the first call."""
        ...

    async def close(self) -> None: ...


class ToolUnavailable(Exception):
    """A tool cannot be used here; the text says what to install or to set."""
