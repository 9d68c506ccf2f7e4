"""Outputs of tools made fit to be read, stored and sent: bounded, and text that every encoder takes."""

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
    """Characters of the text that the model reads, and of the details as JSON (pictures are inside)."""

    text: int = 200_000
    details: int = 32_000_000


def bounded(output: ToolOutput, limits: OutputLimits) -> ToolOutput:
    text = cut(encodable(output.text), limits.text)
    return ToolOutput(text, output.failed, _bounded_details(output.details, limits.details))


def encodable(text: str) -> str:
    """The text without lone surrogates, which no UTF-8 stream can carry."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and its end with a note of how much is missing between them."""
    if len(text) <= limit:
        return text
    head = limit - limit // 4
    note = f"[… {len(text) - limit} characters left out …]"
    return f"{text[:head]}\n{note}\n{text[len(text) - (limit - head) :]}"


def _bounded_details(details: Mapping[str, Any], limit: int) -> Mapping[str, Any]:
    """The details, or none where they are too large or cannot be written as JSON."""
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
