"""Builders of the items of calls that the client runs: functions, custom tools, shells and patches.

`item_builder` is the contract. The model's JSON arguments take the shape that the API fixes. If they are not
valid (the engine may enforce no grammar), the item still has that shape and is incomplete.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from gpt_oss_server.constraints.model_json import read_json_text
from gpt_oss_server.harmony.recipients import called_name
from gpt_oss_server.ids import Ids
from gpt_oss_server.item_builder import Event, Item, ItemBuilder, WholeItem
from gpt_oss_server.tooling.client_tools import ClientTool
from gpt_oss_server.turns.logprobs import Speller, TextScores
from inference.engine import TokenLogprob
from tools.tool import ToolOutput

Given = dict[str, Any]


class _ClientCall(ItemBuilder):
    client_runs = True

    def __init__(self, item_id: str, call_id: str, recipient: str) -> None:
        super().__init__(item_id)
        self.recipient = (call_id, recipient)
        self._call_id = call_id


class _WrittenCall(_ClientCall):
    """A call whose item holds the model's text and streams it."""

    kind: str
    body: str  # the item's key of that text
    event: str

    def __init__(
        self, item_id: str, call_id: str, recipient: str, name: str, namespace: str | None = None
    ) -> None:
        super().__init__(item_id, call_id, recipient)
        self._called = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.scores: TextScores | None = None  # None: no log-probabilities

    def score(self, scored: TokenLogprob) -> None:
        if self.scores is not None:
            self.scores.score(scored)

    def _item(self, text: str, status: str) -> Item:
        return {
            "id": self.id,
            "type": self.kind,
            "status": status,
            self.body: text,
            "call_id": self._call_id,
            **self._called,
            **self._scored(),
        }

    def _scored(self) -> Item:
        return {} if self.scores is None else {"logprobs": list(self.scores.sent)}

    def open(self) -> tuple[Item, list[Event]]:
        return self._item("", "in_progress"), []

    def delta(self, text: str) -> tuple[Event, ...]:
        event: Event = {"type": f"{self.event}.delta", "delta": text}
        if self.scores is not None:
            event["logprobs"] = self.scores.show(text)
        return (event,)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        done = {**self._done(text), **self._scored()}
        return [done], self._item(text, "completed" if complete else "incomplete")

    def _done(self, text: str) -> Event:
        return {"type": f"{self.event}.done", self.body: text}


class FunctionCallBuilder(_WrittenCall):
    """The arguments are the model's text, even if it is invalid JSON."""

    kind = "function_call"
    body = "arguments"
    event = "response.function_call_arguments"

    def _done(self, text: str) -> Event:
        return {"type": f"{self.event}.done", "name": self._called["name"], "arguments": text}


class CustomCallBuilder(_WrittenCall):
    """The input is the model's free-form text."""

    kind = "custom_tool_call"
    body = "input"
    event = "response.custom_tool_call_input"


class _ShapedCall(_ClientCall):
    """A call whose arguments become the item's action; it does not stream them."""

    @abstractmethod
    def item(self, given: Given, status: str) -> Item:
        """The item with the valid ones of these arguments."""

    @abstractmethod
    def fits(self, given: Given) -> bool:
        """Whether the client can run a call with these arguments."""

    def events(self, item: Item) -> list[Event]:
        return []

    def open(self) -> tuple[Item, list[Event]]:
        return self.item({}, "in_progress"), []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        given = _object(text)
        item = self.item(given, "completed" if complete and self.fits(given) else "incomplete")
        return self.events(item), item


class LocalShellBuilder(_ShapedCall):
    def item(self, given: Given, status: str) -> Item:
        env = given.get("env")
        action: Item = {
            "type": "exec",
            "command": _strings(given.get("command")),
            "env": {str(key): str(value) for key, value in env.items()} if isinstance(env, dict) else {},
        }
        action |= _known(given, timeout_ms=int, user=str, working_directory=str)
        return {
            "id": self.id,
            "type": "local_shell_call",
            "status": status,
            "call_id": self._call_id,
            "action": action,
        }

    def fits(self, given: Given) -> bool:
        return bool(_strings(given.get("command")))


class ShellBuilder(_ShapedCall):
    def item(self, given: Given, status: str) -> Item:
        limits = {"timeout_ms": None, "max_output_length": None}
        return {
            "id": self.id,
            "type": "shell_call",
            "status": status,
            "call_id": self._call_id,
            "action": {
                "commands": _strings(given.get("commands")),
                **limits,
                **_known(given, timeout_ms=int, max_output_length=int),
            },
            "environment": {"type": "local"},
        }

    def fits(self, given: Given) -> bool:
        return bool(_strings(given.get("commands")))

    def events(self, item: Item) -> list[Event]:
        events: list[Event] = []
        for index, command in enumerate(item["action"]["commands"]):
            event = {"type": "response.shell_call_command", "command_index": index}
            events.append({**event, "type": f"{event['type']}.added", "command": ""})
            events += [{**event, "type": f"{event['type']}.delta", "delta": command}] if command else []
            events.append({**event, "type": f"{event['type']}.done", "command": command})
        return events


class ApplyPatchBuilder(_ShapedCall):
    """The item is added once its text is complete: clients show the operation of the added item."""

    added_at_end = True
    _given: Given | None = None

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        self._given = _object(text)
        return self

    def open(self) -> tuple[Item, list[Event]]:
        item = self.item(self._given or {}, "in_progress")
        if "diff" in item["operation"]:
            item["operation"]["diff"] = ""
        return item, []

    def item(self, given: Given, status: str) -> Item:
        kind = given.get("type")
        kind = kind if kind in ("create_file", "delete_file") else "update_file"
        operation: Item = {"type": kind, "path": _text(given.get("path"))}
        if kind != "delete_file":
            operation["diff"] = _text(given.get("diff"))
        return {
            "id": self.id,
            "type": "apply_patch_call",
            # The API has no "incomplete" status here; an incomplete call stays in progress.
            "status": "completed" if status == "completed" else "in_progress",
            "call_id": self._call_id,
            "operation": operation,
        }

    def fits(self, given: Given) -> bool:
        needed = ("path",) if given.get("type") == "delete_file" else ("path", "diff")
        known = given.get("type") in ("create_file", "delete_file", "update_file")
        return known and all(isinstance(given.get(key), str) for key in needed)


class ToolSearchBuilder(_ShapedCall):
    """A search for tools that the client runs."""

    execution = "client"

    def item(self, given: Given, status: str) -> Item:
        return {
            "id": self.id,
            "type": "tool_search_call",
            "status": status,
            "call_id": self._call_id if self.execution == "client" else None,
            "execution": self.execution,
            "arguments": given,
        }

    def fits(self, given: Given) -> bool:
        return True


class HostedSearchBuilder(ToolSearchBuilder):
    """A search that this server runs; the tools that it finds become a separate item after it."""

    runs_here = True
    client_runs = False
    execution = "server"

    def __init__(self, item_id: str, found_id: str, recipient: str) -> None:
        super().__init__(item_id, "", recipient)
        self.recipient = None  # the client sends no output for it
        self._found_id = found_id

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        return self.close(text, complete=True)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        found = {
            "id": self._found_id,
            "type": "tool_search_output",
            "status": "completed",
            "call_id": None,
            "execution": "server",
            "tools": list(output.details.get("tools", ())),
        }
        return [WholeItem(found)]


def unknown_call(ids: Ids, recipient: str, speller: Speller | None) -> ItemBuilder:
    """The item of a call to a tool that the request does not have: a function of this name."""
    return _scored(FunctionCallBuilder(ids("fc"), ids("call"), recipient, called_name(recipient)), speller)


def client_builder(
    ids: Ids, tool: ClientTool, *, here: bool = False, speller: Speller | None = None
) -> ItemBuilder:
    """`speller`: of the log-probabilities of functions and custom tools."""
    recipient = tool.recipient
    match tool.kind:
        case "function":
            call = FunctionCallBuilder(ids("fc"), ids("call"), recipient, tool.name, tool.namespace)
            return _scored(call, speller)
        case "custom":
            text = CustomCallBuilder(ids("ctc"), ids("call"), recipient, tool.name, tool.namespace)
            return _scored(text, speller)
        case "local_shell":
            return LocalShellBuilder(ids("lsh"), ids("call"), recipient)
        case "shell":
            return ShellBuilder(ids("sh"), ids("call"), recipient)
        case "apply_patch":
            return ApplyPatchBuilder(ids("apc"), ids("call"), recipient)
        case "tool_search":
            if here:
                return HostedSearchBuilder(ids("tsc"), ids("tso"), recipient)
            return ToolSearchBuilder(ids("tsc"), ids("call"), recipient)


def _scored(builder: _WrittenCall, speller: Speller | None) -> ItemBuilder:
    builder.scores = None if speller is None else TextScores(speller)
    return builder


def _object(text: str) -> Given:
    try:
        given = read_json_text(text)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _strings(given: Any) -> list[str]:
    whole = isinstance(given, list) and all(isinstance(each, str) for each in given)
    return list(given) if whole else []


def _text(given: Any) -> str:
    return given if isinstance(given, str) else ""


def _known(given: Given, **kinds: type) -> Given:
    """The values that are present and of the right type."""
    return {key: given[key] for key, kind in kinds.items() if type(given.get(key)) is kind}
