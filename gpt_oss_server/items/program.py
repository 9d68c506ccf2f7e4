"""Programs of the model that call the client's functions: programmatic tool calling.

Takes the declared tool and the functions that allow programs, a program's call and its results, and its items
of a request. Returns the tool's options, its items, and the programs that go on. A program waits by ending:
it runs again from its beginning with the outputs so far, so its calls and their outputs are all its state. It
must not know how programs run; `tools.python` does.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.content.tools import ClientTool, RequestTools, Tool
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.items.builder import Event, Item, ItemBuilder, WholeItem, json_object
from gpt_oss_server.items.conversation import PROGRAM, Approved, Conversation
from gpt_oss_server.items.hosted import HostedCall, HostedTool
from gpt_oss_server.items.kind import ItemKind, ItemType, completed
from gpt_oss_server.items.tool_search import declared_text
from tools.tool import WAITS, Declaration, ToolOutput

TYPE = "programmatic_tool_calling"
_DIRECT, _FROM_PROGRAMS = "direct", "programmatic"


def callers_of(tool: Tool, where: str) -> tuple[bool, bool]:
    """Whether programs may call the tool, and whether the model may."""
    callers = tool.get("allowed_callers") or [_DIRECT]
    at = f"{where}.allowed_callers"
    if not isinstance(callers, list) or not set(map(str, callers)) <= {_DIRECT, _FROM_PROGRAMS}:
        raise InvalidRequest.at(at, f"must be a list of '{_DIRECT}' and '{_FROM_PROGRAMS}'.")
    if _DIRECT not in callers and tool.get("type") != "function":
        raise UnsupportedField.at(at, ": programs call functions here. Allow 'direct', or leave it out.")
    return _FROM_PROGRAMS in callers and tool.get("type") == "function", _DIRECT in callers


def with_functions(tools: RequestTools) -> None:
    """Gives programs the functions that they may call."""
    if Program.namespace in tools.hosted:
        functions = tuple(tools.programs.values())
        names = tuple(tool.name for tool in functions)
        tools.hosted[Program.namespace] = {"functions": functions, "names": names}
    elif hidden := [tool.name for tool in tools.programs.values() if tool.recipient not in tools.clients]:
        raise InvalidRequest.at(
            "tools", f"has {hidden[0]!r}, which only programs may call: add a tool of the type {TYPE!r}."
        )


def _fingerprint(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()[:32]


class ProgramBuilder(ItemBuilder):
    """A program, and after it its calls or what it printed."""

    about = "A program of the model, which calls the client's functions."
    runs_here = True

    def __init__(self, call: HostedCall) -> None:
        super().__init__(call.id)
        self._suffix = call.id.partition("_")[2]
        self._resumed, self._call_id = bool(call.resumed), call.resumed or f"call_{self._suffix}"
        self._results: Sequence[ItemBuilder] = ()

    def _item(self, text: str) -> Item:
        code = str(json_object(text).get("code") or "")
        names = {"id": self.id, "type": "program", "call_id": self._call_id}
        return {**names, "code": code, "fingerprint": _fingerprint(code)}

    def open(self) -> tuple[Item, list[Event]]:
        return self._item(""), []

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        self._results = self._after(text, output)
        return [], self._item(text)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        return self._results

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return [], self._item(text)

    def _after(self, text: str, output: ToolOutput) -> list[ItemBuilder]:
        """The items of a result: the calls that the program waits for, or its output."""
        if not output.waits:
            return [self._printed(output.text, "incomplete" if output.failed else "completed")]
        written = json_object(text)
        calls = list(written["calls"]) if self._resumed else []  # the model's own would be its invention
        caller = {"type": "program", "caller_id": self._call_id}
        items = [
            {
                "id": f"fc_{self._suffix}_{number}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"{self._call_id}_{number}",
                **call,
                "caller": caller,
            }
            for number, call in enumerate(output.details[WAITS], len(calls))
        ]
        calls += [{"call_id": item["call_id"], **_called(item)} for item in items]
        self.waits = (self._call_id, json.dumps({"code": written.get("code"), "calls": calls}))
        return [ProgramCall(item) for item in items]

    def _printed(self, result: str, status: str) -> ItemBuilder:
        names = {"id": f"progo_{self._suffix}", "type": "program_output", "call_id": self._call_id}
        return ProgramOutput({**names, "result": result, "status": status})


class ResumedProgram(ProgramBuilder):
    """A program that goes on: its item is the first of what follows."""

    about = ""
    added_at_end = True

    def open(self) -> tuple[Item, list[Event]]:
        return self._results[0].open()

    def answered(self, text: str, output: ToolOutput) -> tuple[list[Event], Item]:
        self._results = self._after(text, output)
        first = self._results[0]
        self.id, self.recipient = first.id, first.recipient
        return first.close("", complete=True)

    def further(self, output: ToolOutput) -> Sequence[ItemBuilder]:
        return self._results[1:]

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        return self._results[0].close("", complete=True)

    def whole(self, text: str, *, complete: bool) -> ItemBuilder:
        """It was interrupted."""
        self._results = [self._printed("", "incomplete")]
        return self


class ProgramCall(WholeItem):
    about = "A call of a function that a program of the model made: its `caller` names the program."
    client_runs = True

    def __init__(self, item: Item) -> None:
        super().__init__(item)
        self.recipient = (item["call_id"], PROGRAM)

    def open(self) -> tuple[Item, list[Event]]:
        return {**self._item, "status": "in_progress", "arguments": ""}, []

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        name, arguments = self._item["name"], self._item["arguments"]
        return [
            {"type": "response.function_call_arguments.delta", "delta": arguments},
            {"type": "response.function_call_arguments.done", "name": name, "arguments": arguments},
        ], self._item


class ProgramOutput(WholeItem):
    about = "What a `program` printed."


class Program(HostedTool):
    namespace = PROGRAM.partition(".")[0]
    types = (TYPE,)
    off = "Programs run in the sandbox of python, which is off. Start with --python auto."
    repeatable = True
    item_type = "program"
    id_prefix = "prog"

    def kind(self) -> ItemKind:
        items = (
            ItemType("program", _read_program, self.id_prefix),
            ItemType("program_output", _read_output, "progo", listed=completed),
        )
        return replace(super().kind(), items=items)

    def declared(self, declaration: Declaration, options: Mapping[str, Any]) -> Declaration:
        functions = declared_text([_with_output(tool) for tool in options.get("functions", ())], {})
        return replace(declaration, description=f"{declaration.description}\n\n{functions}")

    def item(self, call: HostedCall) -> ItemBuilder:
        return ResumedProgram(call) if call.resumed else ProgramBuilder(call)


def _with_output(tool: ClientTool) -> ClientTool:
    """The function as programs know it, which must read its output."""
    if (schema := tool.echo.get("output_schema")) is None:
        return tool
    returns = f"Returns JSON of the schema {to_json(schema).decode()}."
    description = "\n".join(filter(None, (tool.declared.description, returns)))
    return replace(tool, declared=replace(tool.declared, description=description))


def _read_program(item: Item, where: str, conversation: Conversation) -> None:
    """A program that the model wrote. Its calls, their outputs and its own output follow."""
    code, call_id = text_field(item, "code", where), text_field(item, "call_id", where)
    if item.get("fingerprint") not in (None, _fingerprint(code)):
        raise InvalidRequest.at(f"{where}.fingerprint", "is not that of the `code`: send both as they came.")
    conversation.approvals[call_id] = (PROGRAM, json.dumps({"code": code, "calls": []}))
    conversation.add(conversation.renderer.call(PROGRAM, json.dumps({"code": code}, ensure_ascii=False)))


def read_program_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call that a program made."""
    caller, call_id = item["caller"].get("caller_id"), text_field(item, "call_id", where)
    recipient, state = conversation.approvals.get(str(caller), ("", ""))
    if recipient != PROGRAM:
        raise _no_program(f"{where}.caller.caller_id", caller)
    program = json.loads(state)
    program["calls"].append({"call_id": call_id, **_called(item)})
    conversation.approvals[str(caller)] = (PROGRAM, json.dumps(program))
    conversation.recipients[call_id] = PROGRAM


def _read_output(item: Item, where: str, conversation: Conversation) -> None:
    """What a program printed."""
    result = text_field(item, "result", where)
    if conversation.approvals.pop(call_id := text_field(item, "call_id", where), ("",))[0] != PROGRAM:
        raise _no_program(f"{where}.call_id", call_id)
    conversation.add(conversation.renderer.tool_result(PROGRAM, result))


def resume_programs(conversation: Conversation) -> None:
    """Lets programs go on whose calls have outputs. Raises a 400 for a call that has none."""
    for key, (recipient, state) in list(conversation.approvals.items()):
        if recipient == PROGRAM:
            for call in json.loads(state)["calls"]:
                if "output" not in call:
                    raise InvalidRequest(
                        f"No tool output found for function call {call['call_id']}, for which a program "
                        "waits. Send its output, with the same call_id.",
                        param="input",
                    )
            del conversation.approvals[key]
            conversation.approved.append(Approved(key, recipient, state))


def _called(item: Item) -> Item:
    return {"name": item["name"], "arguments": item["arguments"]}


def _no_program(where: str, call_id: Any) -> InvalidRequest:
    return InvalidRequest.at(where, f": no program {call_id!r:.100} waits. Send its item before it.")
