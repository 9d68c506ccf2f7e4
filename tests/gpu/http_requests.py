"""Requests of the measurement: jobs for the load (see http_load.py), and a schema with its check."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.gpu.http_figures import Result

TEXT_TOKENS = 199_998  # smaller ids are text
COMPLETION_MARK = '"finish_reason":null'  # once in each delta, and not in the last chunk
RESPONSE_MARK = ".delta\n"  # the end of an event's name
WORDS = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book eye job word business issue"
)
ITEMS = 8
KINDS = ["red", "green", "blue", "something else"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "minItems": ITEMS,
            "maxItems": ITEMS,
            "items": {
                "type": "object",
                "properties": {
                    "kind": {"type": "string", "enum": KINDS},
                    "count": {"type": "integer", "minimum": 0, "maximum": 9999},
                    "known": {"type": "boolean"},
                },
                "required": ["kind", "count", "known"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["items"],
    "additionalProperties": False,
}


class Requests:
    """Creates random requests; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def completion(self, prompt: int, output: int) -> dict[str, Any]:
        body = {
            "prompt": [self._draw.randrange(TEXT_TOKENS) for _ in range(prompt)],
            "max_tokens": output,
            "temperature": 1,
            "seed": self._draw.randrange(2**31),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {"at": 0.0, "path": "/v1/completions", "mark": COMPLETION_MARK, "body": body}

    def response(self, prompt: int, output: int, **more: Any) -> dict[str, Any]:
        body = {
            "input": " ".join(self._draw.choices(WORDS.split(), k=prompt)),
            "max_output_tokens": output,
            "temperature": 1,
            "seed": self._draw.randrange(2**31),
            "stream": True,
        }
        return {"at": 0.0, "path": "/v1/responses", "mark": RESPONSE_MARK, "body": body | more}


def verdict(result: Result) -> str:
    """Whether the answer of a kept stream parses and fits `SCHEMA`, as a phrase."""
    if result["error"] or result["ending"] != "completed":
        return f"ended as {result['ending']}: {result['error']}"
    lines = [
        line for line in result["text"].split("\n") if line.startswith('data: {"type":"response.completed"')
    ]
    output = json.loads(lines[-1][6:])["response"]["output"]
    texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    try:
        items = json.loads(texts[-1])["items"]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return f"does not parse: {error!r}"
    fits = len(items) == ITEMS and all(
        set(item) == {"kind", "count", "known"}
        and item["kind"] in KINDS
        and isinstance(item["count"], int)
        and 0 <= item["count"] <= 9999
        and isinstance(item["known"], bool)
        for item in items
    )
    return "fits" if fits else "does not fit"
