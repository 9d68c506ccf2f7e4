"""Converts content parts to text. A note replaces a part that a text model cannot read; it is never a 400."""

from __future__ import annotations

from typing import Any

from gpt_oss_server.content.attachments import file_text
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.validation import json_type

_TEXT_PARTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
_NOTES = {
    "input_image": "[An image was attached here. This model reads text only and cannot see it.]",
    "image_url": "[An image was attached here. This model reads text only and cannot see it.]",
    "computer_screenshot": "[A screenshot was attached here. This model reads text only and cannot see it.]",
    "input_audio": "[Audio was attached here. This model reads text only and cannot hear it.]",
    "encrypted_content": "[This part was sealed by another service and cannot be read here.]",
}


def text_of(content: Any, where: str) -> str:
    """The text of a string, null, or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest(
            f"`{where}` must be a string or an array of parts, but is {json_type(content)}.", param=where
        )
    return "\n".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidRequest(f"`{where}` must be a content part, but is {json_type(part)}.", param=where)
    kind = part["type"] if isinstance(part.get("type"), str) else None
    if kind in _TEXT_PARTS:
        text = part.get(_TEXT_PARTS[kind])
        if not isinstance(text, str):
            raise InvalidRequest(f"`{where}.{_TEXT_PARTS[kind]}` must be a string.", param=where)
        return text
    if kind in _NOTES:
        return _NOTES[kind]
    if kind == "input_file":
        return file_text(part)
    if kind == "file":  # in Chat Completions
        file = part.get("file")
        return file_text(file if isinstance(file, dict) else {})
    raise InvalidRequest(
        f"`{where}.type`: {part.get('type')!r} is not a supported content part. The type of text is "
        "'text' or 'input_text'.",
        param=f"{where}.type",
    )
