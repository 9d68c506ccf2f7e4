"""`response_format`, `tool_choice` and strict tools of a chat request, read by the one reader of such wishes.

In: a validated request and its tools. Out: a `Wanted` and the formats that the prompt tells
of, or a 400 that names the field as the client wrote it. Only the shape is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from gpt_oss_server.chat.request import CreateChatCompletion
from gpt_oss_server.chat.tools import as_written
from gpt_oss_server.constraints.binding import Schema, TextGrammar, Wanted
from gpt_oss_server.errors import ApiError, InvalidRequest
from gpt_oss_server.tooling.form import AnswerFormat, answer_format, wanted_of
from gpt_oss_server.tooling.hosted import HostedTools
from gpt_oss_server.tooling.requested import RequestTools

F = TypeVar("F", bound=Schema | TextGrammar)


def read_form(
    request: CreateChatCompletion, tools: RequestTools, hosted: HostedTools
) -> tuple[AnswerFormat, Wanted]:
    try:
        answer = answer_format(_flat_format(request.response_format))
        wanted = wanted_of(
            _flat_choice(request), answer, tools, hosted, parallel=request.allows_parallel_calls
        )
    except ApiError as error:
        raise type(error)(_named(error.message, request), param=_named(error.param or "", request)) from None
    if wanted.binds and (request.response_prefix is not None or request.continue_final_message):
        raise InvalidRequest(
            "An answer that the request begins cannot be held to a form. Leave out response_format, "
            "tool_choice and strict, or the beginning.",
            param="response_prefix" if request.response_prefix is not None else "continue_final_message",
        )

    calls = [replace(call, form=call.form and _as_sent(call.form, request)) for call in wanted.calls]
    return answer, replace(wanted, calls=calls, answer=wanted.answer and _as_sent(wanted.answer, request))


def _as_sent(form: F, request: CreateChatCompletion) -> F:
    return replace(form, param=_named(form.param, request))


def _flat_format(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None or given.get("type") != "json_schema":
        return None if given is None else dict(given)
    schema = given.get("json_schema")
    if not isinstance(schema, Mapping):
        raise InvalidRequest(
            "`response_format.json_schema` must be an object with name and schema.",
            param="response_format.json_schema",
        )
    return {**schema, "type": "json_schema"}


def _flat_choice(request: CreateChatCompletion) -> str | dict[str, Any] | None:
    choice, old = request.tool_choice, request.function_call
    if old is not None:
        return old if isinstance(old, str) else {"type": "function", "name": old.get("name")}
    if choice is None or isinstance(choice, str):
        return choice
    allowed = choice.get("allowed_tools")
    if choice.get("type") != "allowed_tools" or not isinstance(allowed, Mapping):
        return dict(_flat_tool(choice))
    tools = allowed.get("tools")
    listed = [_flat_tool(tool) for tool in tools] if isinstance(tools, list) else tools
    return {**allowed, "type": "allowed_tools", "tools": listed}


def _flat_tool(tool: Any) -> Any:
    for kind in ("function", "custom"):
        if isinstance(tool, Mapping) and isinstance(tool.get(kind), Mapping):
            return {**tool[kind], "type": kind}
    return tool


def _named(text: str, request: CreateChatCompletion) -> str:
    nested = request.format_type == "json_schema"
    for part in ("schema", "name", "description"):
        place = f"json_schema.{part}" if nested else part
        text = text.replace(f"text.format.{part}", f"response_format.{place}")
    text = text.replace("text.format", "response_format")
    if request.functions is not None:
        text = text.replace("tool_choice", "function_call")
    return as_written(text, request)
