"""Checks events and objects against OpenAI's published schemas (`schemas.json`, made by `extract.py`).

Takes an event of a stream or an object of an answer. Raises an AssertionError that names the place. Two
exceptions: `usage` is null before the end of a response, although the document allows no null (its own
examples do); and the document does not list two error codes that OpenAI's service sends.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

_ROOT = "https://published/"
UNLISTED = ("context_length_exceeded", "server_is_overloaded")
"""The error codes that OpenAI's service sends, and that neither its document nor its SDK lists."""
_NEWER = {"response.compaction.compacting"}
"""Events that are newer than the document. The official SDK has types for them."""


@cache
def _schemas() -> dict[str, Any]:
    text = Path(__file__).with_name("schemas.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text.replace('"#/components/schemas/', f'"{_ROOT}'))
    return found


@cache
def _registry() -> Registry[Any]:
    made: Registry[Any] = Registry()
    for name, schema in _schemas().items():
        made = made.with_resource(_ROOT + name, Resource(schema, DRAFT202012))
    return made


@cache
def _validator(name: str) -> Validator:
    return Draft202012Validator(_schemas()[name], registry=_registry())


@cache
def _resources() -> jsonschema_rs.Registry:
    named = [(_ROOT + name, schema) for name, schema in _schemas().items()]
    return jsonschema_rs.Registry(named, draft=jsonschema_rs.Draft202012)


@cache
def _fast_validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(_schemas()[name], registry=_resources())


def fits(name: str, value: Any) -> bool:
    """A hundredth of the time of `problems_of`, which knows the reasons."""
    try:
        return _fast_validator(name).is_valid(value)
    except UnicodeEncodeError:  # half a character, which it does not take
        return not problems_of(name, value)


def problems_of(name: str, value: Any) -> list[Any]:
    return sorted(_validator(name).iter_errors(value), key=lambda problem: len(problem.absolute_path))


@cache
def _events() -> dict[str, str]:
    """The type of an event → the name of its schema."""
    found: dict[str, str] = {}
    for reference in _schemas()["ResponseStreamEvent"]["anyOf"]:
        name = reference["$ref"].removeprefix(_ROOT)
        for kind in _schemas()[name]["properties"]["type"]["enum"]:
            found[kind] = name
    return found


def check_object(name: str, value: Any) -> None:
    if not fits(name, value):
        problems = problems_of(name, value)
        reported = [f"{'.'.join(map(str, p.absolute_path))}: {_deepest(p)}"[:600] for p in problems]
        raise AssertionError(f"not a {name} as published: " + "\n".join(reported))


def check_response(response: dict[str, Any]) -> None:
    unset = {"usage"} if response["status"] in ("queued", "in_progress") else set()
    checked = {key: value for key, value in response.items() if value is not None or key not in unset}
    if checked["error"] is not None and checked["error"]["code"] in UNLISTED:
        checked["error"] = {**checked["error"], "code": "server_error"}
    check_object("Response", checked)


def check_event(event: dict[str, Any]) -> None:
    kind = event["type"]
    if kind in _NEWER:
        return
    assert kind in _events(), f"the published schemas have no event {kind}"
    if "response" in event:
        check_response(event["response"])
    else:
        check_object(_events()[kind], event)


def _deepest(problem: Any) -> str:
    """The problem of the intended alternative, whose `type` fits."""
    while problem.context:
        branches: dict[Any, list[Any]] = {}
        for each in problem.context:
            branches.setdefault(each.schema_path[0], []).append(each)
        problem = min(branches.values(), key=_misfit)[0]
    return f"{problem.message} (at {'.'.join(map(str, problem.absolute_path))})"


def _misfit(branch: list[Any]) -> tuple[bool, int]:
    is_another = any(each.absolute_path and each.absolute_path[-1] == "type" for each in branch)
    return is_another, len(branch)
