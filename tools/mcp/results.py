"""The result of an MCP call, as text for the model and as data for the API's item.

Takes a `CallToolResult`. Returns text (text parts joined, other parts noted) and whether it is an error.
Images are returned separately. It must not know connections.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from tools.outputs import cut

OUTPUT_CHARS = 1_000_000  # of one result's text, of which the model may read less
_IMAGE_CHARS = 8_000_000  # of base64, for all images of one result together


@dataclass(frozen=True, slots=True)
class CallText:
    """`images` are `{"mime_type", "data"}`, with the data in base64 as received."""

    text: str
    failed: bool
    images: tuple[dict[str, str], ...] = ()


def read_result(result: CallToolResult) -> CallText:
    parts = [_part(block) for block in result.content]
    if not any(parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    text = "\n".join(part for part in parts if part)
    if not text:
        text = (
            "The tool failed without giving a reason."
            if result.is_error
            else "(the tool answered with nothing)"
        )
    return CallText(cut(text, OUTPUT_CHARS), result.is_error, _images(result))


def _part(block: Any) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data):
            return f"[a picture, {kind}, {_bytes(data)} bytes: it cannot be shown as text]"
        case AudioContent(mime_type=kind, data=data):
            return f"[a sound, {kind}, {_bytes(data)} bytes: it cannot be shown as text]"
        case ResourceLink(name=name, uri=uri):
            return f"[a resource: {name} at {uri}]"
        case EmbeddedResource(resource=TextResourceContents(uri=uri, text=text)):
            return f"[the resource {uri}]\n{text}"
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=blob, mime_type=kind)):
            return (
                f"[the resource {uri}, {kind or 'binary'}, {_bytes(blob)} bytes: it cannot be shown as text]"
            )
        case _:
            return f"[content of the kind {type(block).__name__}: it cannot be shown as text]"


def _bytes(base64_text: str) -> int:
    return len(base64_text.rstrip("=")) * 3 // 4


def _images(result: CallToolResult) -> tuple[dict[str, str], ...]:
    kept: list[dict[str, str]] = []
    room = _IMAGE_CHARS
    for block in result.content:
        if isinstance(block, ImageContent) and len(block.data) <= room:
            room -= len(block.data)
            kept.append({"mime_type": block.mime_type, "data": block.data})
    return tuple(kept)
