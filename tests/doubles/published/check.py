"""Checks events and objects against OpenAI's published schemas (`schemas.json`, made by `extract.py`).

Two exceptions: `usage` is null before the end of a response, although the document allows no null (its own
examples do); and the document does not list two error codes that OpenAI's service sends.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

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
def _registry() -> jsonschema_rs.Registry:
    named = [(_ROOT + name, schema) for name, schema in _schemas().items()]
    return jsonschema_rs.Registry(named, draft=jsonschema_rs.Draft202012)


@cache
def _validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(_schemas()[name], registry=_registry())


@cache
def _events() -> dict[str, str]:
    names = [each["$ref"].removeprefix(_ROOT) for each in _schemas()["ResponseStreamEvent"]["anyOf"]]
    return {kind: name for name in names for kind in _schemas()[name]["properties"]["type"]["enum"]}


def check_object(name: str, value: Any) -> None:
    if not _validator(name).is_valid(value):
        problems = [
            f"{'.'.join(map(str, p.instance_path))}: {p}"[:600] for p in _validator(name).iter_errors(value)
        ]
        raise AssertionError(f"not a {name} as published: " + "\n".join(problems))


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
