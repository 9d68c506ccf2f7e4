"""JSON schema to TypeScript (first cut)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def to_typescript(schema: Mapping[str, Any]) -> str:
    return "any"
