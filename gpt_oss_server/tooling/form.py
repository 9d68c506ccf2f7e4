"""The format of an answer, `tool_choice` and strict tools, read: what a request asks of the form of a turn.

In: these as the Responses API writes them, and the tools as they were read. Out: a `Wanted` in no API's words
and the formats that the prompt tells of, or a 400 that names the field. Whether a schema can be enforced is
not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.constraints.binding import Schema, Wanted
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.render import ResponseFormat
from gpt_oss_server.hosted.table import BY_TYPE
from gpt_oss_server.tooling.client_tools import ANY_OBJECT, SEARCH, ClientTool, namespace_word
from gpt_oss_server.tooling.hosted import HostedTools
from gpt_oss_server.tooling.requested import RequestTools

_SCHEMA = "text.format.schema"
Choice = str | dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What `text.format` asks for."""

    schema: Schema | None = None
    told: tuple[ResponseFormat, ...] = ()  # in the prompt


def answer_format(wanted: Mapping[str, Any] | None) -> AnswerFormat:
    if wanted is None:
        return AnswerFormat()
    match wanted.get("type", "text"):
        case "text":
            return AnswerFormat()
        case "json_object":
            return _json_object(wanted.get("schema"))
        case "json_schema":
            return _json_schema(wanted)
        case kind:
            raise UnsupportedField(
                f"`text.format.type`: {kind!r:.80} is not served by this server. Use 'text', "
                "'json_object' or 'json_schema'.",
                param="text.format",
            )


def _json_object(schema: Any) -> AnswerFormat:
    """Any object, or one of a schema that stands beside the type: llama.cpp's way to ask for it."""
    if schema is None:
        return AnswerFormat(Schema(ANY_OBJECT, "text.format"))
    if not isinstance(schema, dict):
        raise InvalidRequest(f"`{_SCHEMA}` must be a JSON schema object.", param=_SCHEMA)
    return AnswerFormat(Schema(schema, _SCHEMA), (ResponseFormat("json_object", schema, None),))


def _json_schema(wanted: Mapping[str, Any]) -> AnswerFormat:
    if isinstance(wanted.get("json_schema"), dict):
        raise InvalidRequest(
            "`text.format.json_schema`: this is the Chat Completions form; "
            "put name and schema beside `type`.",
            param="text.format.json_schema",
        )
    name, schema = wanted.get("name"), wanted.get("schema")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("`text.format.name` must be a string.", param="text.format.name")
    if not isinstance(schema, dict):
        raise InvalidRequest(f"`{_SCHEMA}` must be a JSON schema object.", param=_SCHEMA)
    description = wanted.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidRequest("`text.format.description` must be a string.", param="text.format.description")
    strict = wanted.get("strict") is True
    return AnswerFormat(Schema(schema, _SCHEMA, strict), (ResponseFormat(name, schema, description),))


def wanted_of(
    choice: Choice, answer: AnswerFormat, tools: RequestTools, hosted: HostedTools, *, parallel: bool = False
) -> Wanted:
    must_call, only = _choice(choice, tools, hosted)
    return Wanted(
        calls=tools.calls,
        declarations=hosted.declarations,
        answer=answer.schema,
        must_call=must_call,
        only=only,
        parallel=parallel and bool(tools.calls or hosted.declarations),
    )


def _choice(choice: Choice, tools: RequestTools, hosted: HostedTools) -> tuple[bool, frozenset[str] | None]:
    """Whether the model must call, and whom it may."""
    if choice is None or choice in ("auto", "none"):
        return False, None
    if choice == "required":
        return True, None
    if isinstance(choice, str):
        raise InvalidRequest(
            f"`tool_choice` must be 'none', 'auto', 'required' or an object, not {choice!r:.80}.",
            param="tool_choice",
        )
    if choice.get("type") != "allowed_tools":
        return True, _recipients(choice, "tool_choice", tools, hosted)
    listed, mode = choice.get("tools"), choice.get("mode", "auto")
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed) or not listed:
        raise InvalidRequest("`tool_choice.tools` must be a list of tools.", param="tool_choice.tools")
    if mode not in ("auto", "required"):
        raise InvalidRequest("`tool_choice.mode` must be 'auto' or 'required'.", param="tool_choice.mode")
    allowed = [
        _recipients(tool, f"tool_choice.tools[{index}]", tools, hosted) for index, tool in enumerate(listed)
    ]
    return mode == "required", frozenset().union(*allowed)


def _recipients(
    named: Mapping[str, Any], where: str, tools: RequestTools, hosted: HostedTools
) -> frozenset[str]:
    """Whom a tool's name in `tool_choice` stands for."""
    kind, name = named.get("type"), named.get("name")
    if isinstance(kind, str) and kind in _OF_CLIENTS:
        found = {tool.recipient for tool in tools.clients.values() if _is_named(tool, named)}
    elif kind == "mcp":
        label = named.get("server_label")
        found = {r for r, (of, n) in hosted.names.items() if of == label and name in (None, n)}
        why = hosted.missing.get(namespace_word(label)) if isinstance(label, str) else None
        if why is not None and where != "tool_choice":
            return frozenset()  # left out here as it is in what the model is told
        if why is not None:
            raise InvalidRequest(f"`{where}` names a tool that is not there. {why}", param=where)
    else:
        hosted_tool = BY_TYPE.get(kind) if isinstance(kind, str) else None
        namespace = None if hosted_tool is None else hosted_tool.namespace
        if namespace in tools.optional and namespace not in hosted.namespaces:
            return frozenset()  # declared, and not there: left out here as it is in `tools`
        found = {r for r in hosted.recipients if r.partition(".")[0] == namespace}
    if not found:
        raise InvalidRequest(
            f"`{where}` names a tool that `tools` does not declare: {dict(named)!r:.120}.", param=where
        )
    return frozenset(found)


def _is_named(tool: ClientTool, named: Mapping[str, Any]) -> bool:
    kind, name, namespace = named["type"], named.get("name"), named.get("namespace")
    if kind == "namespace":
        return tool.namespace is not None and tool.namespace == name
    if kind != tool.kind:
        return False
    return kind not in ("function", "custom") or (tool.name == name and namespace in (None, tool.namespace))


_OF_CLIENTS = frozenset({"function", "custom", "namespace", "local_shell", "shell", "apply_patch"} | {SEARCH})
