"""Prepares outputs of tools for reading, storing and sending: limits them, and ensures encodable text."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from tools.tool import ToolOutput

_log = logging.getLogger(__name__)


TEXT_CHARS = 200_000  # that the model reads
DETAILS_BYTES = 32_000_000  # of the details as JSON, including images


def bounded(output: ToolOutput) -> ToolOutput:
    text = cut(encodable(output.text), TEXT_CHARS)
    return ToolOutput(text, output.failed, _bounded_details(output.details))


def encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot represent."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """The text; if it is too long, its beginning and its end, with a note on how much is missing."""
    if len(text) <= limit:
        return text
    head = limit - limit // 4
    note = f"[… {len(text) - limit} characters left out …]"
    return f"{text[:head]}\n{note}\n{text[len(text) - (limit - head) :]}"


def _bounded_details(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """The details, or none if they are too large or cannot be written as JSON."""
    if not details:
        return {}
    try:
        size = len(json.dumps(details, ensure_ascii=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError):
        _log.warning("A tool's details are not JSON and were dropped", exc_info=True)
        return {}
    if size <= DETAILS_BYTES:
        return details
    _log.warning("A tool's details of %d bytes were dropped; at most %d are kept", size, DETAILS_BYTES)
    return {}
