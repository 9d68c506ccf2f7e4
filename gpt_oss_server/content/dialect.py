"""Where an API keeps the fields of a tool, of an answer's format and of a tool choice.

Takes an object of a request, and its place in the body. Returns the object that holds the fields, and its
place, so that every error names the field that the client sent. Responses is flat: a tool's name is next to
its `type`. Chat Completions nests: the name is in an object named after the type. It must not know what the
fields mean.
"""

from collections.abc import Mapping
from typing import Any, Literal

from gpt_oss_server.errors import InvalidRequest

Fields = Mapping[str, Any]
NamedKind = Literal["function", "custom"]
_NAMED: tuple[NamedKind, ...] = ("function", "custom")
_FORM = {"function": "parameters", "custom": "format"}  # the field that binds the body of a call


class Dialect:
    """Flat, as in the Responses API; `_Nested` is that of Chat Completions."""

    def kind(self, tool: Fields) -> Any:
        """The type of a declared tool."""
        return tool.get("type")

    def tool(self, tool: Fields, where: str, kind: NamedKind) -> tuple[Fields, str]:
        """The object with a tool's name, description and form."""
        if "name" not in tool and isinstance(tool.get(kind), dict):
            raise _nested(where, f"put name and {_FORM[kind]} next to `type`.", "name")
        return tool, where

    def text_format(self, fields: Fields, where: str) -> tuple[Any, Fields, str]:
        """The type of a custom tool's format, and the object with the grammar's syntax and definition."""
        return fields.get("type"), fields, where

    def json_schema(self, fields: Fields, where: str) -> tuple[Fields, str]:
        """The object with the name and the schema of an answer's format."""
        if isinstance(fields.get("json_schema"), dict):
            raise InvalidRequest(
                f"`{where}.json_schema`: this is the Chat Completions form; "
                "put name and schema next to `type`.",
                param=f"{where}.json_schema",
            )
        return fields, where

    def allowed_tools(self, choice: Fields, where: str) -> Fields:
        """The object with the mode and the list of a choice of type `allowed_tools`."""
        if "tools" not in choice and isinstance(choice.get("allowed_tools"), Mapping):
            raise _nested(where, "put mode and tools next to `type`.", "tools")
        return choice

    def reference(self, named: Fields, where: str) -> Fields:
        """The reference to a tool at `where`, with name and type in one object."""
        kind = named.get("type")
        if "name" not in named and kind in _NAMED and isinstance(named.get(kind), Mapping):
            example = f"{{'type': '{kind}', 'name': '…'}}"
            raise _nested(where, f"put the tool's name next to `type`: {example}.", "name")
        return named


def _nested(where: str, remedy: str, key: str) -> InvalidRequest:
    return InvalidRequest(f"`{where}`: this is the Chat Completions form; {remedy}", param=f"{where}.{key}")


class _Nested(Dialect):
    def kind(self, tool: Fields) -> Any:
        return tool.get("type", "function")

    def tool(self, tool: Fields, where: str, kind: NamedKind) -> tuple[Fields, str]:
        inner, at = tool.get(kind), f"{where}.{kind}"
        if not isinstance(inner, Mapping):
            raise InvalidRequest(
                f"`{at}` must be an object with name, description and {_FORM[kind]}.", param=at
            )
        return inner, at

    def text_format(self, fields: Fields, where: str) -> tuple[Any, Fields, str]:
        inner, at = fields.get("grammar"), f"{where}.grammar"
        if isinstance(inner, Mapping):
            return "grammar", inner, at
        kind = fields.get("type")
        return kind, fields, at if kind == "grammar" else where

    def json_schema(self, fields: Fields, where: str) -> tuple[Fields, str]:
        inner, at = fields.get("json_schema"), f"{where}.json_schema"
        if not isinstance(inner, Mapping):
            raise InvalidRequest(f"`{at}` must be an object with name and schema.", param=at)
        return inner, at

    def allowed_tools(self, choice: Fields, where: str) -> Fields:
        inner = choice.get("allowed_tools")
        return inner if isinstance(inner, Mapping) else choice

    def reference(self, named: Fields, where: str) -> Fields:
        for kind in _NAMED:
            if isinstance(inner := named.get(kind), Mapping):
                return {**inner, "type": kind}
        return named


FLAT, NESTED = Dialect(), _Nested()
