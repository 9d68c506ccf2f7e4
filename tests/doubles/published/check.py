"""Holds events and objects against OpenAI's published schemas (`schemas.json`; `extract.py` makes it).

In: an event of a stream, or an object of an answer. Out: nothing, or an AssertionError that names the
place. Three exceptions: `usage` before a response's end and `user`, which are null where the document knows
no null (its own examples do), because the keys of a response are always there; and codes of errors that are
not in the document's list.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

_ROOT = "https://published/"
_YOUNGER = {"response.compaction.compacting"}
"""Events that came after the document; the official SDK's types have them."""


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
def _events() -> dict[str, str]:
    """The type of an event → the name of its schema."""
    found: dict[str, str] = {}
    for reference in _schemas()["ResponseStreamEvent"]["anyOf"]:
        name = reference["$ref"].removeprefix(_ROOT)
        for kind in _schemas()[name]["properties"]["type"]["enum"]:
            found[kind] = name
    return found


def check_object(name: str, value: Any) -> None:
    problems = sorted(_validator(name).iter_errors(value), key=lambda problem: len(problem.absolute_path))
    told = [f"{'.'.join(map(str, p.absolute_path))}: {_deepest(p)}"[:600] for p in problems]
    assert not told, f"not {name} as it is published: " + "\n".join(told)


def check_response(response: dict[str, Any]) -> None:
    unset = {"user"} | ({"usage"} if response["status"] in ("queued", "in_progress") else set())
    told = {key: value for key, value in response.items() if value is not None or key not in unset}
    if told["error"] is not None:
        told["error"] = {**told["error"], "code": "server_error"}
    check_object("Response", told)


def check_event(event: dict[str, Any]) -> None:
    kind = event["type"]
    if kind in _YOUNGER:
        return
    assert kind in _events(), f"no such event is published: {kind}"
    if "response" in event:
        check_response(event["response"])
    else:
        check_object(_events()[kind], event)


def _deepest(problem: Any) -> str:
    """What is wrong with the alternative that was meant: the one whose `type` fits."""
    while problem.context:
        branches: dict[Any, list[Any]] = {}
        for each in problem.context:
            branches.setdefault(each.schema_path[0], []).append(each)
        problem = min(branches.values(), key=_misfit)[0]
    return f"{problem.message} (at {'.'.join(map(str, problem.absolute_path))})"


def _misfit(branch: list[Any]) -> tuple[bool, int]:
    is_another = any(each.absolute_path and each.absolute_path[-1] == "type" for each in branch)
    return is_another, len(branch)
