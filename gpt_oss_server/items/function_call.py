"""Functions: the client declares them, the model calls them, and the client runs each call.

Takes a declared function, or a call and its output of a request, or arguments as the model writes them.
Returns a `ClientTool`, segments, or the item and its events.
"""

from typing import ClassVar

from gpt_oss_server.constraints.wanted import Schema
from gpt_oss_server.content.nested import Fields
from gpt_oss_server.content.tools import (
    ANY_OBJECT,
    ClientTool,
    RequestTools,
    Tool,
    check,
    named_tool,
    tool_name,
)
from gpt_oss_server.harmony.declarations import FunctionTool
from gpt_oss_server.harmony.recipients import called_name
from gpt_oss_server.http.validation import json_text, text_field
from gpt_oss_server.items.builder import Event, EventTexts, Item, WrittenCall
from gpt_oss_server.items.conversation import Conversation, function_recipient, read_output
from gpt_oss_server.items.kind import ItemKind, ItemType, ToolType, completed, with_json_arguments
from gpt_oss_server.items.program import read_program_call


class FunctionCallBuilder(WrittenCall):
    """The arguments are the model's text, even if it is invalid JSON."""

    about = "A call of a function, which the client runs and answers with a `function_call_output`."
    about_events: ClassVar[EventTexts] = {
        "response.function_call_arguments.delta": "More of a function call's arguments.",
        "response.function_call_arguments.done": "The arguments of a function call are complete.",
    }
    prefix = "fc"
    kind = "function_call"
    body = "arguments"
    event = "response.function_call_arguments"

    def _done(self, text: str) -> Event:
        return {"type": f"{self.event}.done", "name": self._called["name"], "arguments": text}


def function_tool(tool: Fields, where: str, namespace: str | None = None) -> ClientTool:
    name = tool_name(tool, where)
    check(tool, where, "description", str, "a string")
    check(tool, where, "parameters", dict, "a JSON schema object")
    check(tool, where, "strict", bool, "a boolean")
    check(tool, where, "output_schema", dict, "a JSON schema object")
    declared = FunctionTool(name, tool.get("description"), tool.get("parameters"), tool.get("strict"))
    form = Schema(declared.parameters or ANY_OBJECT, f"{where}.parameters") if declared.strict else None
    echo = {
        "type": "function",
        "name": name,
        **{key: tool.get(key) for key in ("description", "parameters", "strict")},
        **({"defer_loading": True} if tool.get("defer_loading") is True else {}),
        **{key: tool[key] for key in ("allowed_callers", "output_schema") if tool.get(key)},
    }
    return named_tool("function", tool, namespace, declared, form, echo)


def unknown_function(recipient: str) -> ClientTool:
    """Stands for a tool that the request does not have: its call becomes that of a function of this name."""
    name = called_name(recipient)
    return ClientTool("function", name, recipient, FunctionTool(name))


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """A function that the client runs; with `strict`, its arguments fit `parameters`."""
    tools.declare(function_tool(tool, where))


def _read_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call that the model, or a program of it, made of a function."""
    text_field(item, "name", where)
    arguments = json_text(item, "arguments", where)
    if isinstance(item.get("caller"), dict) and item["caller"].get("type") == "program":
        return read_program_call({**item, "arguments": arguments}, where, conversation)
    return conversation.call(where, item, function_recipient(item), arguments, "json")


def _listed(item: Item) -> Item:
    return completed(with_json_arguments(item))


FUNCTION_CALL = ItemKind(
    items=(
        ItemType("function_call", _read_call, FunctionCallBuilder.prefix, _listed, needs_output=True),
        ItemType("function_call_output", read_output, "fco", completed),
    ),
    tools=(ToolType("function", _read_tool, FunctionCallBuilder),),
)
