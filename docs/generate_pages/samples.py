"""Streams of the Responses API, made by its own builders from what a model and tools might return.

Takes nothing. Returns the events of every kind of item, and its builder's class. No model and no tool runs,
so the pages are the same on every machine. Tests compare them with real streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.apis.responses.output import Detail, item_route
from gpt_oss_server.apis.responses.stream import ResponseStream, Status, error_event
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.errors import EventsForgotten, GenerationFailed
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.events import ClosedBy, Header, MessageFinished, MessageStarted, TextDelta
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.items.builder import Event, Item, ItemBuilder
from gpt_oss_server.items.compaction import CompactionBuilder
from gpt_oss_server.items.mcp import McpListBuilder
from gpt_oss_server.items.reasoning import REASONING_EVENTS
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.toolset.bound import HostedTools, ServerTools
from gpt_oss_server.turns.events import TokenScored, ToolFinished, ToolStarted, TurnEvent
from inference.engine import TokenLogprob
from tools.tool import WAITS, Declaration, ToolOutput

_TOKEN = 13225  # "Hello"
_CITED = ("https://example.org/harbour", "The harbour")
_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "weather", "parameters": {"type": "object"}},
    {"type": "custom", "name": "note"},
    {"type": "local_shell"},
    {"type": "shell"},
    {"type": "apply_patch"},
    {"type": "tool_search"},
]
_CLIENT_SEARCH = {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}
_ECHO = {"name": "echo", "description": "Repeats a text.", "input_schema": {"type": "object"}}
_LISTINGS: list[dict[str, Any]] = [
    {"tools": [{**_ECHO, "annotations": None}]},
    {"tools": [{**_ECHO, "annotations": {"readOnlyHint": True}}], "instructions": "Echoes are free."},
    {"tools": [], "error": "The server does not answer."},
]
_INCLUDE = ("web_search_call.action.sources", "web_search_call.results", "code_interpreter_call.outputs")


@dataclass
class Samples:
    events: list[Event] = field(default_factory=list)
    items: list[tuple[type[ItemBuilder], Item]] = field(default_factory=list)  # as they are done


def samples() -> Samples:
    found = Samples()
    speller = Speller(load_encoding())
    scored = Detail(speller=speller, reasoning_speller=speller, summary=True, seal=lambda message: "…")
    for detail in (Detail(), scored, Detail(reasoning_events=REASONING_EVENTS["open-responses"])):
        for hosted, more, tools, turn in _turns():
            _drive(found, turn, hosted, replace(detail, **more), tools, scored=detail is scored)
    for listed in _LISTINGS:
        item = {"id": "mcpl_1", "type": "mcp_list_tools", "server_label": "echoes", **listed}
        _whole(found, McpListBuilder(item))
    _whole(found, CompactionBuilder({"id": "cmp_1", "type": "compaction", "encrypted_content": "…"}))
    _lifecycles(found)
    return found


Turn = list[TurnEvent]
_KINDS = Kinds.of()
_NO_TOOLS = HostedTools(_KINDS)
_ECHO_NAMES = {"echoes.echo": ("echoes", "echo")}


def _turns() -> Iterator[tuple[HostedTools, dict[str, Any], list[dict[str, Any]], Turn]]:
    declared = tuple(map(Declaration, ("browser", "python", "shell", "program", "echoes")))
    here = HostedTools(_KINDS, declarations=declared, servers=ServerTools(names=_ECHO_NAMES))
    asks = HostedTools(_KINDS, servers=ServerTools(approvals=_ECHO_NAMES))
    shown = {"include": frozenset(_INCLUDE)}
    yield _NO_TOOLS, {}, [], _said("analysis", "A greeting.")
    yield _NO_TOOLS, {}, [], _said("final", "Hello!")
    yield _NO_TOOLS, {"cite": lambda cursor, line: _CITED}, [], _said("final", "It is deep【0†L1】.")
    yield here, shown, [], _ran("browser.search", {"query": "harbour"}, _search())
    yield here, shown, [], _ran("browser.open", {"id": 0}, _opened())
    yield here, shown, [], _ran("browser.find", {"pattern": "deep"}, _looked())
    logs = [{"type": "logs", "logs": "2\n"}]
    yield here, shown, [], _ran("python", "print(1 + 1)", ToolOutput("2\n", details={"outputs": logs}))
    yield here, {}, [], _ran("python", "print(1 + 1)", ToolOutput("2\n"))
    printed = {"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    yield here, {}, [], _ran("shell", {"commands": ["ls"]}, ToolOutput("", details={"output": [printed]}))
    consented = {"approved": (("echoes.echo", "mcpr_1"),)}
    yield here, consented, [], _ran("echoes.echo", {"text": "hi"}, ToolOutput("hi"))
    yield here, shown, [], _ran("echoes.echo", {"text": "hi"}, ToolOutput("hi"))
    yield here, shown, [], _ran("echoes.echo", {"text": "hi"}, ToolOutput("It failed.", failed=True))
    yield asks, {}, [], _called("echoes.echo", {"text": "hi"})
    found = {"tools": [{**_TOOLS[0], "defer_loading": True}]}
    searched = _ran("functions.tool_search", {"query": "weather"}, ToolOutput("", details=found))
    yield _NO_TOOLS, {}, _TOOLS, searched
    space = {"type": "namespace", "name": "home", "tools": [_TOOLS[0], _TOOLS[1]]}
    for name in ("weather", "note"):
        yield _NO_TOOLS, {}, [space], _called(f"home.{name}", _CALLS[f"functions.{name}"])
    for recipient, arguments in _CALLS.items():
        yield _NO_TOOLS, {}, _TOOLS, _called(recipient, arguments)
    yield _NO_TOOLS, {}, [_CLIENT_SEARCH], _called("functions.tool_search", {"query": "weather"})
    code = {"code": "print(await functions.weather(city='Oslo'))"}
    asked = {WAITS: [{"name": "weather", "arguments": '{"city": "Oslo"}'}]}
    yield here, {}, [], _ran("program.run", code, ToolOutput("Rain."))
    yield here, {}, [], _ran("program.run", code, ToolOutput("", details=asked))


_CALLS: dict[str, Any] = {
    "functions.weather": {"city": "Oslo"},
    "functions.note": "Buy milk.",
    "functions.local_shell": {"command": ["ls"], "env": {}, "timeout_ms": 1000},
    "functions.shell": {"commands": ["ls"]},
    "functions.apply_patch": {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b\n"},
}


def _search() -> ToolOutput:
    source = {"type": "url", "url": _CITED[0]}
    action = {"type": "search", "query": "harbour", "queries": ["harbour"], "sources": [source]}
    results = [{"title": _CITED[1], "url": _CITED[0], "snippet": "It is deep."}]
    return ToolOutput("…", details={"action": action, "results": results})


def _opened() -> ToolOutput:
    return ToolOutput("…", details={"action": {"type": "open_page", "url": _CITED[0]}})


def _looked() -> ToolOutput:
    action = {"type": "find_in_page", "pattern": "deep", "url": _CITED[0]}
    return ToolOutput("…", details={"action": action})


def _said(channel: Any, text: str) -> Turn:
    header = Header(channel)
    return [MessageStarted(header), TextDelta(text), MessageFinished(header, text, ClosedBy.END, 0, 4)]


def _called(recipient: str, arguments: Any) -> Turn:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    header = Header("commentary", recipient)
    return [MessageStarted(header), TextDelta(text), MessageFinished(header, text, ClosedBy.CALL, 0, 4)]


def _ran(recipient: str, arguments: Any, output: ToolOutput) -> Turn:
    call = _called(recipient, arguments)
    begun, written = call[0], call[1]
    assert isinstance(begun, MessageStarted)
    assert isinstance(written, TextDelta)
    return [*call, ToolStarted(begun.header, written.text), ToolFinished(begun.header, output)]


def _drive(
    found: Samples,
    turn: Turn,
    hosted: HostedTools,
    detail: Detail,
    tools: list[dict[str, Any]],
    *,
    scored: bool,
) -> None:
    builders: list[ItemBuilder] = []
    clients = _KINDS.read_tools(tools, offered=True).clients
    choose = item_route(CountingIds(), hosted, detail, clients)

    def route(header: Header) -> ItemBuilder:
        builders.append(choose(header))
        return builders[-1]

    stream = ResponseStream(_response("in_progress"), route, lambda: 0.0)
    score = TokenScored(TokenLogprob(_TOKEN, -0.25, ((_TOKEN, -0.25),)))
    for event in turn:
        if scored and isinstance(event, TextDelta):
            found.events += stream.feed([score])
        found.events += stream.feed([event])
    made, *further = stream.response["output"]
    for place in (made, made.get("environment", {})):
        if "container_id" in place:
            place["container_id"] = "cntr_1"  # its real name depends on a secret of the process
    found.items.append((type(builders[0]), made))
    more = builders[0].further(next((e.output for e in turn if isinstance(e, ToolFinished)), ToolOutput("")))
    found.items += (
        [(type(builder), item) for builder, item in zip(more, further, strict=True)] if further else []
    )


def _whole(found: Samples, builder: ItemBuilder) -> None:
    stream = ResponseStream(_response("in_progress"), lambda header: builder, lambda: 0.0)
    found.events += stream.add(builder)
    found.items.append((type(builder), stream.response["output"][0]))


def _lifecycles(found: Samples) -> None:
    ends: tuple[Status, ...] = ("completed", "incomplete", "failed")
    for end in ends:
        stream = ResponseStream(
            _response("queued"), item_route(CountingIds(), _NO_TOOLS, Detail(), {}), lambda: 0.0
        )
        found.events += stream.start()
        error = GenerationFailed("The engine failed.") if end == "failed" else None
        found.events += stream.finish(end, error=error)
    for param in (None, "starting_after"):
        found.events.append(error_event(EventsForgotten("These events are gone.", param=param), 7))


def _response(status: str) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": status, "output": []}
