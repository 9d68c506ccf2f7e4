"""The contract of tools: takes calls of the model, returns text for the model.

The server creates a `Tool` once, and opens a `Session` for each conversation, which holds the tool's state
between calls. A failed call is an ordinary output. It must not know the server, tokens or inference.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A tool, as declared to the model. Without functions it is called by its bare name (`python`)."""

    namespace: str
    description: str | None = None
    functions: tuple[Function, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """For whom a tool works: a name, and how many sessions and bytes of memory it may hold (None: any)."""

    name: str = ""
    sessions: int | None = None
    memory: int | None = None


NOBODY = Client()


class Attached(NamedTuple):
    """A file that a request has for a session. `read` returns its bytes; None: it was deleted meanwhile."""

    id: str
    name: str
    read: Callable[[], Awaitable[bytes | None]]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as the model wrote it. `function` is "" for a tool that is called by its bare name."""

    function: str
    arguments: str
    options: Mapping[str, Any] = field(default_factory=dict)  # the request's settings for this tool
    client: Client = NOBODY


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The text for the model, whether the call failed, and the data for the API's item.

    `details` has the form that the tool documents (the browser's action and sources, python's outputs).
    """

    text: str
    failed: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether the call has no result yet: it is made again once the client has made these calls."""
        return bool(self.details.get(WAITS))


WAITS = "waits_for"  # the key of details with calls: [{"name", "arguments"}, …]


class Session(Protocol):
    """One conversation's use of one tool. Calls come one at a time."""

    async def run(self, call: ToolCall) -> ToolOutput:
        """Never raises because of the model's input or the outside world. Cancelling it stops the work."""
        ...

    async def close(self) -> None: ...


class Tool(Protocol):
    @property
    def declaration(self) -> Declaration: ...

    def open(self) -> Session:
        """A new session. Must be cheap: expensive work waits for the first call."""
        ...

    async def close(self) -> None: ...


class ToolUnavailable(Exception):
    """A tool cannot be used here; the message states what to install or to set."""


_log = logging.getLogger(__name__)


TEXT_CHARS = 200_000  # that the model reads
DETAILS_BYTES = 32_000_000  # of the details as JSON, including images


def bounded(output: ToolOutput) -> ToolOutput:
    text = cut(encodable(output.text), TEXT_CHARS)
    return ToolOutput(text, output.failed, _bounded_details(output.details))


def encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot represent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """The text; if it is too long, its beginning and its end, with a note on how much is missing."""
    if len(text) <= limit:
        return text
    head = limit - limit // 4
    note = f"[… {len(text) - limit} characters left out …]"
    return f"{text[:head]}\n{note}\n{text[len(text) - (limit - head) :]}"


def _bounded_details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """The details, or none if they are too large or cannot be written as JSON."""
    if not details:
        return {}
    try:
        size = len(json.dumps(details, ensure_ascii=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError):
        _log.warning("A tool's details are not JSON and were dropped", exc_info=True)
        return {}
    if size <= DETAILS_BYTES:
        return details
    _log.warning("A tool's details of %d bytes were dropped; at most %d are kept", size, DETAILS_BYTES)
    return {}
