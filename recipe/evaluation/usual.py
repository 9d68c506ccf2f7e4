"""Handwritten requests in usual words for usual functions: a test that the recipe did not generate.

`usual.json` has two lists of them, each with its declarations. Training never sees them: they show how the
model performs outside its own stock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpt_oss_server.harmony.render import FunctionTool
from recipe.text.talk import Talk, Value, function_call, json_object

FILE = Path(__file__).with_name("usual.json")
_DATE = "2026-11-24"


def usual_talks() -> Iterator[Talk]:
    """One request each, and the call that it needs."""
    for listed in json.loads(FILE.read_text("utf-8")):
        tools = {
            key: FunctionTool(tool["name"], tool["description"], tool["parameters"])
            for key, tool in listed["tools"].items()
        }
        for request, declared, name, arguments in listed["cases"]:
            talk = Talk("call")
            talk.open(_DATE, tools=[tools[key] for key in declared])
            talk.user(request)
            talk.turn(function_call(Value(name), json_object(_fields(arguments))), kind="call")
            yield talk


def _fields(arguments: dict[str, Any]) -> list[tuple[str, Value, bool]]:
    return [
        (name, Value(value if isinstance(value, str) else json.dumps(value)), isinstance(value, str))
        for name, value in arguments.items()
    ]
