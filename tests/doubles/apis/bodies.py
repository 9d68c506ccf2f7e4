"""A request that declares tools of several kinds."""

from __future__ import annotations

BODY = {
    "input": "hi",
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}],
}
