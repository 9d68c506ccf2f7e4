"""The tools of a request: what the model is told of them, and how they are echoed.

In: the `tools` array. Out: function tools for the renderer, the recipients that the decoder may expect, and
the echoed form with every key that clients read. A kind of tool that is not served is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.render import FunctionTool

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")


@dataclass(frozen=True, slots=True)
class RequestTools:
    functions: tuple[FunctionTool, ...] = ()
    echo: tuple[dict[str, Any], ...] = ()


def parse_tools(tools: Sequence[dict[str, Any]], *, offered: bool) -> RequestTools:
    """`offered` is false for tool_choice "none": tools are checked and echoed, and the model sees none."""
    functions = tuple(_function(tool, f"tools[{i}]") for i, tool in enumerate(tools))
    names = [function.name for function in functions]
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"`tools` declares {name!r} twice; names must be unique.", param="tools")
    return RequestTools(functions if offered else (), tuple(_echo(f) for f in functions))


def _function(tool: dict[str, Any], where: str) -> FunctionTool:
    kind = tool.get("type")
    if kind != "function":
        raise UnsupportedField(
            f"`{where}.type`: tools of type {kind!r} are not served by this server; "
            "declare it as a function and run it on your side.",
            param=f"{where}.type",
        )
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
    return FunctionTool(
        name=name,
        description=tool.get("description"),
        parameters=tool.get("parameters"),
        strict=tool.get("strict"),
    )


def _check(tool: dict[str, Any], where: str, key: str, kind: type, expected: str) -> None:
    value = tool.get(key)
    if value is not None and not isinstance(value, kind):
        raise InvalidRequest(f"`{where}.{key}` must be {expected}.", param=f"{where}.{key}")


def _echo(function: FunctionTool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters,
        "strict": function.strict,
    }
