"""A custom tool with a grammar, in the form of the Chat API."""

from __future__ import annotations

from typing import Any

GRAMMAR = {"syntax": "regex", "definition": "[a-z ]+"}
SAY: dict[str, Any] = {
    "type": "custom",
    "custom": {"name": "say", "description": "Says it.", "format": {"type": "grammar", "grammar": GRAMMAR}},
}
