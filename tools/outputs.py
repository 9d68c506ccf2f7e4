"""Prepares outputs of tools for reading, storing and sending: limits them, and ensures encodable text."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.tool import ToolOutput

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The limits on the text that the model reads, and on the details as JSON (including images)."""

    text: int = 200_000
    details: int = 32_000_000


def bounded(output: ToolOutput, limits: OutputLimits) -> ToolOutput:
    text = cut(encodable(output.text), limits.text)
    return ToolOutput(text, output.failed, _bounded_details(output.details, limits.details))


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


def _bounded_details(details: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """The details, or none if they are too large or cannot be written as JSON."""
    if not details:
        return {}
    try:
        size = len(json.dumps(details, ensure_ascii=False).encode("utf-8"))
    except (TypeError, ValueError, RecursionError):
        _log.warning("A tool's details are not JSON and were dropped", exc_info=True)
        return {}
    if size <= limit:
        return details
    _log.warning("A tool's details of %d bytes were dropped; at most %d are kept", size, limit)
    return {}
