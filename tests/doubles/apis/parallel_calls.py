"""Two calls to one tool, as the model generates them."""

from __future__ import annotations

from typing import Any

from tests.doubles.apis.asking import call

TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}

OSLO, PARIS = call("functions.f", '{"c":"Oslo"}'), call("functions.f", '{"c":"Paris"}')


def arguments(response: dict[str, Any]) -> list[str]:
    """Those of a response's calls."""
    return [item["arguments"] for item in response["output"] if item["type"] == "function_call"]
