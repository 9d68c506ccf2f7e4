"""Prompt templates: files of the operator with fields of a request, whose texts have `{{variables}}`.

Takes a request's body and the folder of the templates. Returns the body with the fields of its template, or
raises an `ApiError`. `ID.json` is the template of an id, `ID@VERSION.json` one of its versions.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_oss_server.content.parts import INPUT_PARTS, as_items
from gpt_oss_server.errors import InvalidRequest, NotFound, UnsupportedField

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}")


def with_template(body: object, folder: Path | None) -> object:
    """The request's own fields win. The template's input comes first, where a conversation begins."""
    if not isinstance(body, dict) or body.get("prompt") is None:
        return body
    if folder is None:
        advice = "Its operator can keep some with --prompts DIR; or send the text as instructions and input."
        raise UnsupportedField(f"This server keeps no prompt templates. {advice}", param="prompt")
    prompt, used = body["prompt"], set[str]()
    template = _read(folder, prompt)
    variables = prompt.get("variables") or {}
    if not isinstance(variables, dict):
        raise InvalidRequest.at("prompt.variables", "must be an object.")
    template = _filled(template, variables, used)
    if unknown := [name for name in variables if name not in used]:
        raise InvalidRequest.at(f"prompt.variables.{unknown[0]}", "is no variable of the template.")
    given = [as_items(template.pop("input", None)), as_items(body.get("input"))]
    if body.get("previous_response_id") is not None or body.get("conversation") is not None:
        given = given[1:]
    return {**template, **body, "input": [item for items in given for item in items] or None}


def _read(folder: Path, prompt: Any) -> dict[str, Any]:
    names = [prompt.get("id"), prompt.get("version")] if isinstance(prompt, dict) else [None]
    if not isinstance(names[0], str) or not all(name is None or _NAME.fullmatch(str(name)) for name in names):
        raise InvalidRequest.at("prompt", "must be an object with the `id` of a template, and its `version`.")
    name = "@".join(str(name) for name in names if name is not None)
    try:
        read = json.loads((folder / f"{name}.json").read_text("utf-8"))
    except OSError as error:
        raise NotFound(f"There is no prompt template {name!r} on this server.", param="prompt") from error
    except ValueError as error:
        raise InvalidRequest(f"The prompt template {name!r} is not JSON: {error}.", param="prompt") from error
    if not isinstance(read, dict):
        raise InvalidRequest(f"The prompt template {name!r} is no object.", param="prompt")
    return read


def _filled(value: Any, variables: Mapping[str, Any], used: set[str]) -> Any:
    if isinstance(value, dict):
        text = value.get("text") if value.get("type") == "input_text" else None
        named = _VARIABLE.fullmatch(text.strip()) if isinstance(text, str) else None
        if named is not None and isinstance(variables.get(named[1]), dict):
            return _part(named[1], variables[named[1]], used)
        return {key: _filled(each, variables, used) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, variables, used) for each in value]
    return (
        _VARIABLE.sub(lambda found: _text(found[1], variables, used), value) if type(value) is str else value
    )


def _part(name: str, given: Mapping[str, Any], used: set[str]) -> Mapping[str, Any]:
    """A variable that is a part of its own, in place of the text part that names nothing else."""
    used.add(name)
    if given.get("type") not in INPUT_PARTS:
        raise InvalidRequest.at(f"prompt.variables.{name}.type", f"must be one of {', '.join(INPUT_PARTS)}.")
    return given


def _text(name: str, variables: Mapping[str, Any], used: set[str]) -> str:
    used.add(name)
    given = variables.get(name)
    text = given.get("text") if isinstance(given, dict) and given.get("type") == "input_text" else given
    if not isinstance(text, str):
        raise InvalidRequest.at(f"prompt.variables.{name}", "must be a text: the template has it in one.")
    return text
