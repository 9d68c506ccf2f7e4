"""Two calls to one tool, as the model generates them."""

from __future__ import annotations

from typing import Any

from tests.doubles.apis.asking import call

TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}

OSLO, PARIS = call("functions.f", '{"c":"Oslo"}'), call("functions.f", '{"c":"Paris"}')
