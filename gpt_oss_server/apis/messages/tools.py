"""Tools of a message's request as tools of the Responses API.

Takes `tools`, `mcp_servers` and `tool_choice`. Returns their translation, and for each tool the place where
the client wrote it, or raises a 400 that names a tool that cannot be served.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.validation import json_type, text_field
from gpt_oss_server.json_values import dicts_of

Tool = dict[str, Any]
_DATED = re.compile(r"(.*)_(20\d{6})\Z")
_FILES = "file_search"  # OpenAI's tool: Anthropic has none
_HERE = {
    "web_search": "web_search",
    "web_fetch": "web_search",
    "code_execution": "code_interpreter",
    _FILES: _FILES,
}
# A search that this server would run is not needed: all tools are declared.
_LEFT_OUT = ("tool_search_tool_bm25", "tool_search_tool_regex")


def _object(required: Sequence[str], **properties: Tool) -> Tool:
    return {"type": "object", "properties": properties, "required": list(required)}


def _words(*values: str) -> Tool:
    return {"type": "string", "enum": list(values)}


_TEXT: Tool = {"type": "string"}
_RANGE: Tool = {"type": "array", "items": {"type": "integer"}}
_EDITOR = {
    "path": _TEXT,
    "file_text": _TEXT,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "insert_line": {"type": "integer"},
    "insert_text": _TEXT,
    "view_range": _RANGE,
}
_CLIENT_TOOLS: dict[str, tuple[str, Tool]] = {
    "bash": (
        "Runs a command in a shell that keeps its state. `restart` starts it again.",
        _object([], command=_TEXT, restart={"type": "boolean"}),
    ),
    "text_editor": (
        "Views and edits files: `view` a file or a folder, `create` a file, replace a text that occurs once "
        "(`str_replace`), or `insert` a text after a line.",
        _object(
            ["command", "path"],
            command=_words("view", "create", "str_replace", "insert", "undo_edit"),
            **_EDITOR,
        ),
    ),
    "memory": (
        "Keeps files in /memories across conversations. Look there before you begin.",
        _object(
            ["command"],
            command=_words("view", "create", "str_replace", "insert", "delete", "rename"),
            **_EDITOR,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""Anthropic's typed tools that the client runs: their descriptions and the schemas that clients expect."""


@dataclass(slots=True)
class LaterTools:
    """Tools that the prompt declares where the conversation adds them: what is before stays cached."""

    deferred: dict[str, Tool]
    _found: list[Tool] = field(default_factory=list)

    def find(self, name: str) -> None:
        if (tool := self.deferred.pop(name, None)) is not None:
            self._found.append(tool)

    def add(self, tool: Any, where: str) -> None:
        """The tool of a `tool_addition`: a reference, or its definition."""
        fields: Tool = tool if isinstance(tool, dict) else {}
        kind, definition = fields.get("type"), fields.get("definition")
        if kind == "tool_reference":
            self.find(text_field(fields, "name", where))
        elif kind == "tool_definition" and isinstance(definition, dict) and _kind(definition)[0] == "custom":
            self._found.append(_function(definition, f"{where}.definition"))
        else:
            raise UnsupportedField.at(
                where,
                "must be a tool_reference, or the tool_definition of a custom tool. Declare other "
                "tools in `tools` or `mcp_servers`.",
            )

    def take(self) -> list[Tool]:
        """The tools found since the last time."""
        found, self._found = self._found, []
        return found


@dataclass(frozen=True, slots=True)
class ReadTools:
    tools: list[Tool]
    places: list[str]  # where the client wrote each
    most_calls: int | None  # of tools that run here
    later: LaterTools


def read_tools(tools: Sequence[Any], servers: Sequence[Any], container: Any) -> ReadTools:
    declared = dicts_of(tools)
    toolsets = {tool.get("mcp_server_name"): tool for tool in declared if tool.get("type") == "mcp_toolset"}
    read: list[tuple[Tool, str]] = []
    hosted: dict[str, int] = {}  # by type: the index of each tool that runs here
    limits: list[int | None] = []
    deferred: dict[str, Tool] = {}
    defers = not any(_kind(tool)[0] in _LEFT_OUT for tool in declared)
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not isinstance(tool, dict):
            raise InvalidRequest.at(where, f"must be an object, but is {json_type(tool)}.")
        kind, date = _kind(tool)
        if kind == "mcp_toolset" or kind in _LEFT_OUT:
            continue
        if kind == "custom" and defers and tool.get("defer_loading"):
            function = _function(tool, where)
            deferred[function["name"]] = function
        elif kind == "custom":
            read.append((_function(tool, where), where))
        elif kind in _HERE and (date or kind == _FILES):
            limits.append(tool.get("max_uses"))
            # One browser both searches and fetches: the second declaration adds its limits to the first.
            added = _hosted(tool, kind, where, container)
            first = hosted.setdefault(added["type"], len(read))
            if first == len(read):
                read.append((added, where))
            else:
                read[first] = ({**read[first][0], **added}, read[first][1])
        elif date and kind in _CLIENT_TOOLS:
            about, schema = _CLIENT_TOOLS[kind]
            function = {"type": "function", "name": text_field(tool, "name", where)}
            read.append(({**function, "description": about, "parameters": schema}, where))
        else:
            raise UnsupportedField.at(
                f"{where}.type",
                f": tools of type {tool.get('type')!r} are not served. Declare a custom tool "
                "with an input_schema.",
            )
    for index, server in enumerate(servers):
        where = f"mcp_servers[{index}]"
        read.append((_mcp(server, where, toolsets), where))
    counted = [limit for limit in limits if limit is not None]
    return ReadTools(
        [tool for tool, _ in read],
        [where for _, where in read],
        sum(counted) if counted and len(counted) == len(limits) else None,
        LaterTools(deferred),
    )


def _kind(tool: Tool) -> tuple[str, str]:
    """The tool's type without its date, and the date."""
    kind = tool.get("type") or "custom"
    dated = _DATED.match(kind) if isinstance(kind, str) else None
    return (dated[1], dated[2]) if dated else (str(kind), "")


def _function(tool: Tool, where: str) -> Tool:
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise InvalidRequest.at(f"{where}.input_schema", "must be a JSON schema object.")
    about = tool.get("description")
    if examples := tool.get("input_examples"):
        shown = "\n".join(json.dumps(example, ensure_ascii=False) for example in examples)
        about = "\n\n".join(part for part in (about, f"Examples of its input:\n{shown}") if part)
    read = {"type": "function", "name": text_field(tool, "name", where), "parameters": schema}
    for key, value in (("description", about), ("strict", tool.get("strict"))):
        read |= {} if value is None else {key: value}
    return {**read, **_callers(tool)}


def _callers(tool: Tool) -> Tool:
    return {} if tool.get("allowed_callers") is None else {"allowed_callers": tool["allowed_callers"]}


def _hosted(tool: Tool, kind: str, where: str, container: Any) -> Tool:
    if kind == "code_execution":
        named = container.get("id") if isinstance(container, dict) else container
        return {"type": _HERE[kind], "container": named or {"type": "auto"}, **_callers(tool)}
    if kind == _FILES:
        return {**tool, "shown_as_pages": True}
    if tool.get("max_content_tokens") is not None or tool.get("url_sources") is not None:
        raise UnsupportedField.at(
            where,
            ": the browser shows pages in views of its own length, from all sources. Leave "
            "max_content_tokens and url_sources out.",
        )
    filters = {key: tool[key] for key in ("allowed_domains", "blocked_domains") if tool.get(key)}
    location = {"user_location": tool["user_location"]} if tool.get("user_location") else {}
    return {"type": _HERE[kind], **({"filters": filters} if filters else {}), **location, **_callers(tool)}


def _mcp(server: Any, where: str, toolsets: Mapping[Any, Tool]) -> Tool:
    if not isinstance(server, dict):
        raise InvalidRequest.at(where, f"must be an object, but is {json_type(server)}.")
    name = text_field(server, "name", where)
    read: Tool = {
        "type": "mcp",
        "server_label": name,
        "server_url": text_field(server, "url", where),
        "require_approval": "never",
    }
    if token := server.get("authorization_token"):
        read["authorization"] = token
    old = server.get("tool_configuration") or {}
    allowed = old.get("allowed_tools") if old.get("enabled") is not False else []
    toolset = toolsets.get(name, {})
    if configs := toolset.get("configs"):
        default = (toolset.get("default_config") or {}).get("enabled", True)
        named = dict.fromkeys(tool for tool, config in configs.items() if config.get("enabled", default))
        if default:
            off = ", ".join(repr(tool) for tool in configs if tool not in named)
            if off:
                raise UnsupportedField.at(
                    where,
                    f": {off} cannot be switched off alone. Set default_config.enabled to false, "
                    "and enable the tools that the model may call.",
                )
        else:
            allowed = list(named)
    return read if allowed is None else {**read, "allowed_tools": allowed}


def read_choice(choice: Mapping[str, Any] | None, tools: Sequence[Tool]) -> Tool:
    """`tool_choice` and `parallel_tool_calls`: several calls are allowed unless the choice forbids them."""
    choice = choice or {"type": "auto"}
    parallel = choice.get("disable_parallel_tool_use") is not True
    kind = choice.get("type")
    if kind == "tool":
        name = text_field(choice, "name", "tool_choice")
        hosted = _HERE.get(name)
        of_server = hosted is not None and any(tool["type"] == hosted for tool in tools)
        wanted: Any = {"type": hosted} if of_server else {"type": "function", "name": name}
    elif kind in ("auto", "any", "none"):
        wanted = {"any": "required"}.get(kind, kind)
    else:
        raise InvalidRequest.at("tool_choice.type", f"must be 'auto', 'any', 'tool' or 'none', not {kind!r}.")
    return {"tool_choice": wanted, "parallel_tool_calls": parallel}
