"""The text of developer messages, and the tools of system messages: what the model reads about its tools.

Byte for byte those of Harmony's own renderer, except where that renderer is lossy. It must not know tokens or
the conversation.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpt_oss_server.harmony.typescript import to_typescript

Effort = Literal["low", "medium", "high"]

FUNCTIONS = "functions"


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function the model may call. `strict` binds the decoding, not the text that the model reads."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolNamespace:
    """Functions under one name (`browser`, an MCP server's label), or a tool without functions (`python`)."""

    name: str
    description: str | None = None
    tools: tuple[FunctionTool, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """A JSON schema for the final answer."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """What the developer message declares."""

    instructions: str | None = None
    tools: Sequence[FunctionTool] = ()
    namespaces: Sequence[ToolNamespace] = ()
    response_formats: Sequence[ResponseFormat] = ()


def developer_text(declared: Declared) -> str:
    """The text of the developer message, or an empty string if there is nothing to declare."""
    sections = []
    if declared.instructions:
        sections.append(f"# Instructions\n\n{declared.instructions}")
    functions = [ToolNamespace(FUNCTIONS, tools=tuple(declared.tools))] if declared.tools else []
    if namespaces := [*declared.namespaces, *functions]:
        sections.append(tools_section(namespaces))
    if declared.response_formats:
        sections += ["# Response Formats", *map(_response_format, declared.response_formats)]
    return "\n\n".join(sections)


def tools_section(namespaces: Sequence[ToolNamespace]) -> str:
    """`# Tools`, sorted by name as the library sorts it, so that the prompt's prefix is stable."""
    by_name = sorted(namespaces, key=lambda namespace: namespace.name)
    return "\n\n".join(["# Tools", *map(_namespace, by_name)])


def _namespace(namespace: ToolNamespace) -> str:
    described = _lines(namespace.description)
    if not namespace.tools:
        return "\n".join([f"## {namespace.name}\n", *described])
    lines = [f"## {namespace.name}\n", *(f"// {line}" for line in described)]
    lines.append(f"namespace {namespace.name} {{\n")
    for tool in namespace.tools:
        lines += [f"// {line}" for line in _lines(tool.description)]
        takes = "" if tool.parameters is None else f"_: {to_typescript(tool.parameters)}"
        lines.append(f"type {tool.name} = ({takes}) => any;\n")
    lines.append(f"}} // namespace {namespace.name}")
    return "\n".join(lines)


def _response_format(wanted: ResponseFormat) -> str:
    described = "".join(f"// {line}\n" for line in _lines(wanted.description))
    schema = json.dumps(wanted.schema, separators=(",", ":"), ensure_ascii=False)
    return f"## {wanted.name}\n\n{described}{schema}"


def _lines(text: str | None) -> list[str]:
    """Splits at line feeds only, as the library does; Python's splitlines knows a dozen more line ends."""
    lines = text.removesuffix("\n").split("\n") if text else []
    return [line.removesuffix("\r") for line in lines]
