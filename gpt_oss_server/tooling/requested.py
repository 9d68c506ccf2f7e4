"""The tools of a request, read: what the client runs, what runs here, and how they are echoed.

In: the `tools` array. Out: function tools for the renderer, which of our tools are asked for and with what
options, and the echoed form with every key that clients read. A kind of tool that is not served is refused by
name. Whether a tool of ours is there to be used is the toolset's to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.binding import Schema
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable, UnsupportedField
from gpt_oss_server.harmony.render import FunctionTool

Tool = dict[str, Any]
ANY_OBJECT: Tool = {"type": "object"}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@dataclass(slots=True)
class RequestTools:
    """What was read so far; filled tool by tool, then left alone."""

    functions: list[FunctionTool] = field(default_factory=list)
    strict: dict[str, Schema] = field(default_factory=dict)  # of functions that are held to it, by name
    hosted: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # namespace → the tool's options
    servers: list[tuple[str, Tool]] = field(default_factory=list)  # (where, MCP tool as written)
    echo: list[Tool] = field(default_factory=list)
    offered: bool = True  # false for tool_choice "none": checked and echoed, and the model sees none


def parse_tools(tools: Sequence[Tool], *, offered: bool) -> RequestTools:
    read = RequestTools(offered=offered)
    for index, tool in enumerate(tools):
        where, kind = f"tools[{index}]", tool.get("type")
        reader = _READERS.get(kind) if isinstance(kind, str) else None
        if reader is None:
            raise UnsupportedField(
                f"`{where}.type`: tools of type {kind!r} are not served by this server; "
                "declare it as a function and run it on your side.",
                param=f"{where}.type",
            )
        reader(tool, where, read)
    names = [function.name for function in read.functions]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"`tools` declares {name!r} twice; names must be unique.", param="tools")
    return read


def _function(tool: Tool, where: str, read: RequestTools) -> None:
    if "name" not in tool and isinstance(tool.get("function"), dict):
        raise InvalidRequest(
            f"`{where}`: this is the Chat Completions form; put name and parameters beside `type`.",
            param=f"{where}.name",
        )
    name = tool.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        raise InvalidRequest(
            f"`{where}.name` must be 1 to 128 letters, digits, '_', '-' or '.'.", param=f"{where}.name"
        )
    _check(tool, where, "description", str, "a string")
    _check(tool, where, "parameters", dict, "a JSON schema object")
    _check(tool, where, "strict", bool, "a boolean")
    function = FunctionTool(name, tool.get("description"), tool.get("parameters"), tool.get("strict"))
    read.functions.append(function)
    if function.strict:
        read.strict[name] = Schema(function.parameters or ANY_OBJECT, f"{where}.parameters")
    read.echo.append(
        {
            "type": "function",
            "name": function.name,
            "description": function.description,
            "parameters": function.parameters,
            "strict": function.strict,
        }
    )


def _web_search(tool: Tool, where: str, read: RequestTools) -> None:
    _check(tool, where, "filters", dict, "an object")
    _check(tool, where, "user_location", dict, "an object")
    if tool.get("external_web_access") is not False:  # then it is just not offered
        options = ("filters", "user_location", "search_context_size")
        read.hosted["browser"] = {key: tool[key] for key in options if tool.get(key) is not None}
    read.echo.append(dict(tool))


def _code_interpreter(tool: Tool, where: str, read: RequestTools) -> None:
    read.hosted["python"] = {}
    read.echo.append({**tool, "container": tool.get("container") or {"type": "auto"}})


def _mcp(tool: Tool, where: str, read: RequestTools) -> None:
    try:
        from tools.mcp.request import public_form
    except ImportError as error:
        raise ToolNotAvailable(
            f"MCP servers cannot be used here: {error}. Install 'gpt-oss-server[tools]'.", param=where
        ) from None
    read.servers.append((where, tool))
    read.echo.append(public_form(tool))


def _check(tool: Tool, where: str, key: str, kind: type, expected: str) -> None:
    value = tool.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(f"`{where}.{key}` must be {expected}.", param=f"{where}.{key}")


_READERS: dict[str, Callable[[Tool, str, RequestTools], None]] = {
    "function": _function,
    "web_search": _web_search,
    "web_search_2025_08_26": _web_search,
    "web_search_preview": _web_search,
    "web_search_preview_2025_03_11": _web_search,
    "browser_search": _web_search,
    "code_interpreter": _code_interpreter,
    "mcp": _mcp,
}
