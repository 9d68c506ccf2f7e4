"""The tools of a chat request, from every field that declares some.

Takes `tools`, `functions`, `web_search_options` and the built-in tools of `chat_template_kwargs`. Returns the
tools as the kinds' rows read them, or raises a 400 that names the field as the client sent it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import AnswerFormat, requested_answer
from gpt_oss_server.content.dialect import FLAT, NESTED
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import UnsupportedField
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.items.function_call import function_tool
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.choice import wanted_of


def read_tools(request: CreateChatCompletion, kinds: Kinds) -> RequestTools:
    read = RequestTools(offered=request.offers_tools)
    for index, tool in enumerate(request.tools or ()):
        kinds.read_tool(tool, f"tools[{index}]", read, NESTED)
    for index, function in enumerate(request.functions or ()):
        read.declare(function_tool(function, f"functions[{index}]"))
    if request.web_search_options is not None:
        kinds.read_tool(_web_search(request.web_search_options), "web_search_options", read)
    for name in request.template.builtin_tools or ():
        kinds.read_tool({"type": kinds.hosted[name].types[0]}, "chat_template_kwargs.builtin_tools", read)
    _check_forms(read)
    return read


def _web_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """The tool that `web_search_options` declares; they nest the user's location one object deeper."""
    location = options.get("user_location")
    inner = location.get("approximate") if isinstance(location, Mapping) else None
    place = {"user_location": inner} if isinstance(inner, Mapping) else {}
    return {**options, **place, "type": "web_search"}


def _check_forms(tools: RequestTools) -> None:
    for tool in tools.clients.values():
        if tool.kind not in ("function", "custom") or tool.namespace is not None:
            kind = tool.kind if tool.namespace is None else "namespace"
            raise UnsupportedField(
                f"`tools`: Chat Completions cannot represent calls of tools of type {kind!r}. Declare a "
                "function, or use the Responses API.",
                param="tools",
            )


def read_form(
    request: CreateChatCompletion, tools: RequestTools, hosted: HostedTools, encoding: Encoding
) -> tuple[AnswerFormat, Wanted]:
    answer = requested_answer(request, request.response_format, "response_format", NESTED, encoding)
    return answer, _wanted(request, answer, tools, hosted)


def _wanted(
    request: CreateChatCompletion, answer: AnswerFormat, tools: RequestTools, hosted: HostedTools
) -> Wanted:
    parallel, old = request.allows_parallel_calls, request.function_call
    if old is None:
        choice = request.tool_choice
        return wanted_of(choice, answer, tools, hosted, dialect=NESTED, parallel=parallel)
    named = old if isinstance(old, str) else {"type": "function", "name": old.get("name")}
    return wanted_of(named, answer, tools, hosted, where="function_call", dialect=FLAT, parallel=parallel)
