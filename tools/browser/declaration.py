"""The browser's declaration for the model: Harmony's own, as in gpt-oss's training. A test compares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tools.tool import Declaration, Function

_NUMBER: Final = {"type": "number", "default": -1}


def _parameters(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    return schema | {"required": list(required)} if required else schema


BROWSER: Final = Declaration(
    namespace="browser",
    description=(
        "Tool for browsing.\n"
        "The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n"
        "Cite information from the tool using the following format:\n"
        "`【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.\n"
        "Do not quote more than 10 words directly from the tool output.\n"
        "sources=web (default: web)"
    ),
    functions=(
        Function(
            "search",
            "Searches for information related to `query` and displays `topn` results.",
            _parameters(
                {
                    "query": {"type": "string"},
                    "topn": {"type": "number", "default": 10},
                    "source": {"type": "string"},
                },
                "query",
            ),
        ),
        Function(
            "open",
            "Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, "
            "showing `num_lines` lines.\n"
            "Valid link ids are displayed with the formatting: `【{id}†.*】`.\n"
            "If `cursor` is not provided, the most recent page is implied.\n"
            "If `id` is a string, it is treated as a fully qualified URL associated with `source`.\n"
            "If `loc` is not provided, the viewport will be positioned at the beginning of the document or "
            "centered on the most relevant passage, if available.\n"
            "Use this function without `id` to scroll to a new location of an opened page.",
            _parameters(
                {
                    "id": {"type": ["number", "string"], "default": -1},
                    "cursor": _NUMBER,
                    "loc": _NUMBER,
                    "num_lines": _NUMBER,
                    "view_source": {"type": "boolean", "default": False},
                    "source": {"type": "string"},
                }
            ),
        ),
        Function(
            "find",
            "Finds exact matches of `pattern` in the current page, or the page given by `cursor`.",
            _parameters({"pattern": {"type": "string"}, "cursor": _NUMBER}, "pattern"),
        ),
    ),
)
