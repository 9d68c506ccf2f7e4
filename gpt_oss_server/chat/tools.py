"""The tools of a chat request, in all forms that Chat Completions has for them, read by the one tool reader.

In: `tools`, `functions`, `web_search_options` and a template's built-in tools. Out: what `tooling.requested`
makes of them. Only the shape is changed here; errors name the field as the client wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_oss_server.chat.request import CreateChatCompletion
from gpt_oss_server.errors import ApiError, InvalidRequest, UnsupportedField
from gpt_oss_server.hosted.table import BY_NAMESPACE
from gpt_oss_server.tooling.requested import RequestTools, parse_tools


def read_tools(request: CreateChatCompletion) -> RequestTools:
    flat = _flat_tools(request)
    try:
        tools = parse_tools(flat, offered=request.offers_tools)
    except ApiError as error:
        raise type(error)(
            as_written(error.message, request), param=as_written(error.param or "tools", request)
        ) from None
    _check_forms(tools)
    return tools


def _check_forms(tools: RequestTools) -> None:
    for tool in tools.clients.values():
        if tool.kind not in ("function", "custom") or tool.namespace is not None:
            kind = tool.kind if tool.namespace is None else "namespace"
            raise UnsupportedField(
                f"`tools`: Chat Completions has no form for calls of tools of type {kind!r}. Declare a "
                "function, or use the Responses API.",
                param="tools",
            )


def _flat_tools(request: CreateChatCompletion) -> list[dict[str, Any]]:
    """All tools that the request has by any of its fields, in the form of the Responses API."""
    tools = [_flat(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())]
    tools += [{**function, "type": "function"} for function in request.functions or ()]
    if request.web_search_options is not None:
        tools.append(_web_search(request.web_search_options))
    tools += [{"type": BY_NAMESPACE[name].types[0]} for name in request.template.builtin_tools or ()]
    return tools


def _web_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """Where the user is stands one level deeper here."""
    location = options.get("user_location")
    inner = location.get("approximate") if isinstance(location, Mapping) else None
    near = {"user_location": {**inner, "type": "approximate"}} if isinstance(inner, Mapping) else {}
    return {**options, **near, "type": "web_search"}


def _flat(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A function's description beside its type, as the Responses API has it; other tools are as they are."""
    if tool.get("type") == "custom":
        return _flat_custom(tool, where)
    if tool.get("type", "function") != "function":
        return dict(tool)
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise InvalidRequest(
            f"`{where}.function` must be an object with name, description and parameters.",
            param=f"{where}.function",
        )
    return {**function, "type": "function"}


def _flat_custom(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    custom = tool.get("custom")
    if not isinstance(custom, Mapping):
        raise InvalidRequest(
            f"`{where}.custom` must be an object with name, description and format.", param=f"{where}.custom"
        )
    given = custom.get("format")
    grammar = given.get("grammar") if isinstance(given, Mapping) else None
    wanted = {**grammar, "type": "grammar"} if isinstance(grammar, Mapping) else given
    return {**custom, "type": "custom", "format": wanted}


def as_written(text: str, request: CreateChatCompletion) -> str:
    """`tools[0].name` was `tools[0].function.name`, or `functions[0].name`, in the request."""
    for index, tool in enumerate(request.tools or ()):
        kind = tool.get("type", "function")
        if kind in ("function", "custom"):
            text = text.replace(f"tools[{index}].", f"tools[{index}].{kind}.")
        for key in ("syntax", "definition"):
            text = text.replace(
                f"tools[{index}].custom.format.{key}", f"tools[{index}].custom.format.grammar.{key}"
            )
    return text.replace("tools[", "functions[") if request.functions is not None else text
