"""Custom tools: the client runs them on a text, which may have a grammar.

Takes a declared tool, or a call and its output of a request, or text as the model writes it. Returns a
`ClientTool`, segments, or the item and its events.
"""

from typing import ClassVar

from gpt_oss_server.constraints.wanted import TextGrammar
from gpt_oss_server.content.nested import Fields
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.content.tools import (
    ClientTool,
    RequestTools,
    Tool,
    check,
    named_tool,
    tool_name,
    without_nulls,
)
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.declarations import FunctionTool
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.items.builder import EventTexts, Item, WrittenCall
from gpt_oss_server.items.conversation import Conversation, function_recipient, read_output
from gpt_oss_server.items.kind import ItemKind, ItemType, ToolType, completed

_RAW = "Call it with the text itself, not as JSON."


class CustomCallBuilder(WrittenCall):
    """The input is the model's free-form text."""

    about = "A call of a custom tool, which the client runs and answers with a `custom_tool_call_output`."
    about_events: ClassVar[EventTexts] = {
        "response.custom_tool_call_input.delta": "More of the input of a custom tool's call.",
        "response.custom_tool_call_input.done": "The input of a custom tool's call is complete.",
    }
    prefix = "ctc"
    kind = "custom_tool_call"
    body = "input"
    event = "response.custom_tool_call_input"


def custom_tool(tool: Fields, where: str, namespace: str | None = None) -> ClientTool:
    name = tool_name(tool, where)
    check(tool, where, "description", str, "a string")
    check(tool, where, "format", dict, "an object")
    form = _text_form(tool.get("format") or {"type": "text"}, f"{where}.format")
    lines = [tool.get("description"), _RAW, _rule(form)]
    declared = FunctionTool(name, "\n".join(line for line in lines if line), {"type": "string"})
    echo = {**without_nulls(tool), "type": "custom", "format": tool.get("format") or {"type": "text"}}
    return named_tool("custom", tool, namespace, declared, form, echo)


def _text_form(fields: Fields, where: str) -> TextGrammar | None:
    match fields.get("type"):
        case "text":
            return None
        case "grammar":
            syntax, definition = fields.get("syntax"), fields.get("definition")
            if syntax not in ("lark", "regex"):
                raise InvalidRequest.at(f"{where}.syntax", f"must be 'lark' or 'regex', not {syntax!r:.80}.")
            if not isinstance(definition, str) or not definition:
                raise InvalidRequest.at(f"{where}.definition", "must be a non-empty string.")
            return TextGrammar(syntax, definition, f"{where}.definition")
        case kind:
            raise InvalidRequest.at(f"{where}.type", f"must be 'text' or 'grammar', not {kind!r:.80}.")


def _rule(form: TextGrammar | None) -> str | None:
    """The prompt's sentence about the grammar."""
    if form is None:
        return None
    if form.syntax == "regex":
        return f"The text must match this regular expression as a whole: {form.definition}"
    return f"The text must follow this Lark grammar:\n{form.definition}"


def _read_tool(tool: Tool, where: str, tools: RequestTools) -> None:
    """A tool that the client runs on a text, which may have a grammar."""
    tools.declare(custom_tool(tool, where))


def _read_call(item: Item, where: str, conversation: Conversation) -> None:
    """A call that the model made of a custom tool."""
    text_field(item, "name", where)
    conversation.call(
        where, item, function_recipient(item), text_of(item.get("input"), f"{where}.input"), None
    )


CUSTOM_CALL = ItemKind(
    items=(
        ItemType("custom_tool_call", _read_call, CustomCallBuilder.prefix, completed, needs_output=True),
        ItemType("custom_tool_call_output", read_output, "ctco", completed),
    ),
    tools=(ToolType("custom", _read_tool, CustomCallBuilder),),
)
