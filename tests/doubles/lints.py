"""Checks the invariants of a stream of Responses events, and compares streams with reviewed snapshots."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.doubles.pages import reference
from tests.doubles.published.check import UNLISTED, check_event

Event = dict[str, Any]
TERMINAL = {"response.completed", "response.incomplete", "response.failed"}
# Items without content parts, with the key of their streamed text; None: nothing is streamed.
_CLIENT_CALLS: dict[str, str | None] = {"function_call": "arguments", "custom_tool_call": "input"}
_CLIENT_CALLS |= dict.fromkeys(("local_shell_call", "shell_call", "apply_patch_call", "tool_search_call"))
_CALLS = {**_CLIENT_CALLS, "code_interpreter_call": "code", "mcp_call": "arguments"}
_CALLS |= dict.fromkeys(("mcp_list_tools", "mcp_approval_request", "web_search_call", "compaction"))
_CALLS |= dict.fromkeys(("tool_search_output", "shell_call_output", "program", "program_output"))
_sdk_event: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class StreamLint:
    """`feed` it every event, then `close` it. An AssertionError names the fault."""

    def __init__(self, *, sdk_types: bool = True, ends_cut_calls: bool = True) -> None:
        self.ends_cut_calls = ends_cut_calls  # False: a cut call, the last item, has no `done` events
        self.sdk_types = sdk_types  # also check each event against the SDK's types and the reference; slower
        self.events: list[Event] = []
        self.items: dict[int, Event] = {}  # added, by output index
        self.done: dict[int, Event] = {}
        self.deltas: dict[int, list[str]] = {}
        self.text_done: dict[int, str] = {}
        self.logprobs: dict[int, list[Any]] = {}  # sent with the deltas
        self.commands: dict[int, list[str]] = {}  # of shells
        self.printed: dict[tuple[int, int], Event] = {}  # by commands
        self.open_parts: set[int] = set()
        self.summaries: dict[int, SummaryLint] = {}
        self.ended: Event | None = None

    def feed(self, event: Event) -> None:
        assert self.ended is None, f"{event['type']} after the terminal event"
        assert event["sequence_number"] == len(self.events), "sequence numbers are dense from 0"
        if self.sdk_types:
            _sdk_event.validate_python(_for_the_sdk(event))
            check_event(event)
            reference.check_event(event)
        kind = event["type"]
        if not self.events:
            assert kind == "response.created"
        if "response" in event:
            self._response(event)
        elif kind == "response.output_item.added":
            self._added(event)
        elif kind == "response.output_item.done":
            self._item_done(event)
        else:
            self._within(event)
        self.events.append(event)

    def close(self) -> Event:
        assert self.ended is not None, "no terminal event"
        output = self.ended["output"]
        assert sorted(self.items) == list(range(len(output)))
        whole = output if self.ends_cut_calls else output[: len(self.done)]
        assert whole == [self.done[i] for i in range(len(self.done))], "final output = done items"
        for item in output[len(whole) :]:  # a call that was cut off
            assert item["type"] in _CLIENT_CALLS
            assert item["status"] in ("incomplete", "in_progress")
        ids = [item["id"] for item in output]
        assert len(set(ids)) == len(ids), "item ids are unique"
        Response.model_validate(_for_the_sdk(self.ended))
        return self.ended

    def _response(self, event: Event) -> None:
        response = event["response"]
        if self.events:
            assert response["id"] == self.events[0]["response"]["id"], "the response keeps its id"
            assert event["type"] != "response.created"
        if event["type"] in TERMINAL:
            ending = {"cancelled": "incomplete"}.get(response["status"], response["status"])
            assert event["type"] == f"response.{ending}"
            assert response["usage"] is not None
            self.ended = response
        else:
            before = [earlier["type"] for earlier in self.events]
            queued = response["background"] and "response.in_progress" not in (*before, event["type"])
            assert response["status"] == ("queued" if queued else "in_progress")
            assert ("response.queued" in before) == response["background"] or queued
            # Once the output has begun, the event also serves as a keep-alive.
            assert response["output"] == [self.done[at] for at in range(len(self.done))]

    def _added(self, event: Event) -> None:
        index, item = event["output_index"], event["item"]
        assert index == len(self.items), "output indices are dense, one for each item"
        assert index == len(self.done), "an item is done before the next is added"
        assert item["id"]
        if item["type"] == "message":
            assert item["content"] == []
            assert item["role"] == "assistant"
            assert item["status"] == "in_progress"
            assert item["phase"] in ("commentary", "final_answer")
        elif item["type"] == "reasoning":
            assert item["summary"] == []
            assert item["content"] == []
        else:
            key = _CALLS[item["type"]]
            assert key is None or item[key] == ""
            if "call_id" in item and not _is_server_search(item):
                assert item["call_id"]
            if item["type"] in ("function_call", "custom_tool_call"):
                assert item["name"]
                assert not item["name"].startswith("functions."), "a recipient is no name"
            self.open_parts.add(index)  # text is streamed without a content part
        self.items[index] = item
        self.deltas[index] = []

    def _within(self, event: Event) -> None:
        kind, index = event["type"], event["output_index"]
        assert index in self.items, f"{kind} before its item was added"
        assert index not in self.done, f"{kind} after its item was done"
        assert event["item_id"] == self.items[index]["id"], "an id changed within its item"
        if kind.startswith("response.reasoning_summary_"):
            self.summaries.setdefault(index, SummaryLint()).feed(event)
            return
        if kind == "response.content_part.added":
            assert event["content_index"] == 0
            self.open_parts.add(index)
            return
        assert index in self.open_parts, f"{kind} outside of a content part"
        if kind == "response.content_part.done":
            assert event["part"]["text"] == self.text_done[index]
            assert event["part"].get("logprobs", []) == self.logprobs.get(index, [])
            self.open_parts.discard(index)
            return
        stem, _, ending = kind.rpartition(".")
        if stem == "response.shell_call_command":
            self._command(event, ending)
            return
        if stem == "response.shell_call_output_content":
            self._printed(event, ending)
            return
        if stem.removeprefix("response.") in _CALLS:
            return  # the steps of a call that runs on the server
        if ending == "delta":
            assert event["delta"], "an empty delta"
            self.logprobs.setdefault(index, []).extend(event.get("logprobs", ()))
            assert index not in self.text_done, "a delta after the text was done"
            event["delta"].encode("utf-8")
            self.deltas[index].append(event["delta"])
        elif ending == "done":
            assert index not in self.text_done, "the text is done once"
            text = event[stem.rpartition("_")[2]]
            assert "".join(self.deltas[index]) == text, "the sum of the deltas is the done text"
            assert event.get("logprobs", []) == self.logprobs.get(index, []), "a score came late or twice"
            self.text_done[index] = text

    def _command(self, event: Event, ending: str) -> None:
        commands = self.commands.setdefault(event["output_index"], [])
        if ending == "added":
            assert event["command_index"] == len(commands)
            commands.append(event["command"])
        assert event["command_index"] == len(commands) - 1
        if ending == "delta":
            commands[-1] += event["delta"]
        if ending == "done":
            assert event["command"] == commands[-1]

    def _printed(self, event: Event, ending: str) -> None:
        key = (event["output_index"], event["command_index"])
        if ending == "delta":
            assert key not in self.printed, "a command's output comes at once"
            self.printed[key] = event["delta"]
        else:
            (output,) = event["output"]
            written = {name: output[name] for name in ("stdout", "stderr") if output[name]}
            assert self.printed.get(key, {}) == written

    def _item_done(self, event: Event) -> None:
        index, item = event["output_index"], event["item"]
        assert index in self.items
        assert index not in self.done, "an item is done once"
        added = self.items[index]
        assert (item["id"], item["type"]) == (added["id"], added["type"])
        if _CALLS.get(item["type"], "parts") is not None:
            assert self.text_of(item) == self.text_done[index], "the item holds the text that was streamed"
        if item["type"] == "reasoning":
            assert item["summary"] == self.summaries.pop(index, SummaryLint()).close()
        for key in ("name", "namespace", "call_id"):
            assert item.get(key) == added.get(key), f"the {key} changed within its item"
        if item["type"] == "shell_call":
            assert item["action"]["commands"] == self.commands.get(index, []), "the streamed commands"
        if item["type"] != "apply_patch_call":  # which has no other status for a truncated call
            assert item.get("status") != "in_progress"
        absent = {key for key, value in item.items() if value is None} - {"outputs", "max_output_length"}
        assert absent <= ({"call_id"} if _is_server_search(item) else set()), "absent where due, never null"
        self.done[index] = item

    @staticmethod
    def text_of(item: Event) -> str:
        key = _CALLS.get(item["type"])
        if key is not None:
            return str(item[key])
        return "".join(part["text"] for part in item["content"])


def _is_server_search(item: Event) -> bool:
    """Its call_id is null in the API, as the client has nothing to answer."""
    return item["type"] in ("tool_search_call", "tool_search_output") and item["execution"] == "server"


def _for_the_sdk(value: Event) -> Event:
    """Replaces the two error codes that the SDK's types do not list, and that OpenAI's service sends."""
    if "response" in value:
        return {**value, "response": _for_the_sdk(value["response"])}
    if (value.get("error") or {}).get("code") not in UNLISTED:
        return value
    return {**value, "error": {**value["error"], "code": "server_error"}}


class SummaryLint:
    """The summary of one reasoning item: parts that follow one another, each the sum of its deltas."""

    def __init__(self) -> None:
        self.parts: list[Event] = []
        self.deltas: list[str] | None = None  # of the open part
        self.text: str | None = None  # once it is done

    def feed(self, event: Event) -> None:
        assert event["summary_index"] == len(self.parts), "summary indices are dense"
        match event["type"].removeprefix("response.reasoning_summary_"):
            case "part.added":
                assert self.deltas is None, "a part is done before the next is added"
                assert event["part"] == {"type": "summary_text", "text": ""}
                self.deltas = []
            case "text.delta":
                assert self.deltas is not None
                assert self.text is None, "a delta after the text was done"
                assert event["delta"], "an empty delta"
                self.deltas.append(event["delta"])
            case "text.done":
                assert self.deltas is not None
                assert event["text"] == "".join(self.deltas), "the sum of the deltas is the done text"
                self.text = event["text"]
            case "part.done":
                assert event["part"] == {"type": "summary_text", "text": self.text}
                self.parts.append(event["part"])
                self.deltas = self.text = None

    def close(self) -> list[Event]:
        assert self.deltas is None, "every part is done before its item is"
        return self.parts


def check_stream(events: list[Event], **options: bool) -> Event:
    lint = StreamLint(**options)
    for event in events:
        lint.feed(event)
    return lint.close()


def compare(path: Path, events: list[dict[str, Any]]) -> None:
    """A missing snapshot is written, and the test fails: review the file, then run the test again."""
    lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines, encoding="utf-8")
        pytest.fail(f"{path.name} was written: review it")
    assert lines == path.read_text(encoding="utf-8")
