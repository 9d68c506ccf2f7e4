"""The form of Chat Completions: the fields of a tool, a format or a choice nest in an object of its type.

Takes such an object. Returns it in the form of the Responses API, with the fields next to `type`, so that one
reader serves all APIs. It must not know what the fields mean.
"""

from collections.abc import Mapping
from typing import Any

from gpt_oss_server.errors import InvalidRequest

Fields = Mapping[str, Any]
_NAMED = ("function", "custom")


def flat_tool(tool: Fields, where: str) -> tuple[dict[str, Any], str]:
    """A declared tool, and the place of its fields."""
    kind = tool.get("type", "function")
    if kind not in _NAMED:
        return dict(tool), where
    at = f"{where}.{kind}"
    fields = {**_inner(tool, kind, at), "type": kind}
    if isinstance(form := fields.get("format"), dict) and isinstance(form.get("grammar"), dict):
        fields["format"] = {**form["grammar"], "type": "grammar"}
    return fields, at


def flat_format(fields: Fields | None, where: str) -> tuple[Fields | None, str]:
    """The format of an answer, and the place of its fields."""
    if fields is None or fields.get("type") != "json_schema":
        return fields, where
    at = f"{where}.json_schema"
    return {**_inner(fields, "json_schema", at), "type": "json_schema"}, at


def flat_choice(choice: Any) -> Any:
    """A tool choice."""
    if not isinstance(choice, Mapping):
        return choice
    kind = choice.get("type")
    if kind == "allowed_tools" and isinstance(allowed := choice.get(kind), Mapping):
        listed = allowed.get("tools")
        tools = [flat_choice(tool) for tool in listed] if isinstance(listed, list) else listed
        return {**allowed, "tools": tools, "type": kind}
    named = next((name for name in _NAMED if isinstance(choice.get(name), Mapping)), None)
    return choice if named is None else {**choice[named], "type": named}


def check_flat(fields: Fields, where: str, key: str) -> None:
    """Refuses the form of Chat Completions in another API, as clients mistake one for the other."""
    kind = fields.get("type")
    if key not in fields and isinstance(kind, str) and isinstance(fields.get(kind), Mapping):
        problem = f"`{where}`: this is the Chat Completions form; put {key} and all else next to `type`."
        raise InvalidRequest(problem, param=f"{where}.{key}")


def _inner(fields: Fields, kind: str, at: str) -> Fields:
    if not isinstance(inner := fields.get(kind), Mapping):
        raise InvalidRequest.at(at, "must be an object with a name and further fields.")
    return inner
