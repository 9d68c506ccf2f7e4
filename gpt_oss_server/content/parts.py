"""Converts content parts to text.

A note replaces a picture or a sound, which a text model cannot read. A file that cannot be read is a 400 that
states the reason: its text would be missing without a word to the client.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.validation import json_type
from tools.charsets import find_codec

_TEXT_PARTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
_IMAGE = "[An image was attached here. This model reads text only and cannot see it.]"
INPUT_PARTS = ("input_text", "input_image", "input_file")  # of the user's messages, in Responses
_NOTES = {
    "input_image": _IMAGE,
    "image_url": _IMAGE,
    "computer_screenshot": "[A screenshot was attached here. This model reads text only and cannot see it.]",
    "input_audio": "[Audio was attached here. This model reads text only and cannot hear it.]",
    "encrypted_content": "[This part was sealed by another service and cannot be read here.]",
}


_IMAGES = frozenset({"input_image", "image_url", "computer_screenshot", "image_generation_call"})


def treat_images(items: Any, where: str, treatment: str) -> None:
    """Refuses items or parts with an image, where the operator wants this instead of a note to the model."""
    if treatment != "refuse":
        return
    places = [(f"{where}[{i}]", each) for i, each in enumerate(items)] if isinstance(items, list) else []
    for place, item in places or [(where, items)]:
        if not isinstance(item, dict):
            continue
        if item.get("type") in _IMAGES:
            raise UnsupportedField.at(
                place, ": this model cannot see images. Leave it out, or describe it in words."
            )
        for key in ("content", "output"):
            treat_images(item.get(key), f"{place}.{key}", treatment)


def as_items(given: Any) -> list[Any]:
    """The `input` of a request for a response as its items: a text is a message of the user."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return given if isinstance(given, list) else [] if given is None else [given]


def text_of(content: Any, where: str) -> str:
    """The text of a string, null, or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRequest.at(where, f"must be a string or an array of parts, but is {json_type(content)}.")
    return "\n".join(_part(part, f"{where}[{i}]") for i, part in enumerate(content))


def _part(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise InvalidRequest.at(where, f"must be a content part, but is {json_type(part)}.")
    kind = part["type"] if isinstance(part.get("type"), str) else None
    if kind in _TEXT_PARTS:
        text = part.get(_TEXT_PARTS[kind])
        if not isinstance(text, str):
            raise InvalidRequest(f"`{where}.{_TEXT_PARTS[kind]}` must be a string.", param=where)
        return text
    if kind in _NOTES:
        return _NOTES[kind]
    if kind == "input_json":
        if not isinstance(part.get("data"), dict | list):
            raise InvalidRequest.at(f"{where}.data", "must be an object or an array.")
        return json.dumps(part["data"], ensure_ascii=False)
    if kind == "input_file":
        return file_text(part, where)
    if kind == "file":  # in Chat Completions
        file = part.get("file")
        return file_text(file if isinstance(file, dict) else {}, f"{where}.file")
    raise InvalidRequest.at(
        f"{where}.type",
        f": {part.get('type')!r} is not a supported content part. The type of text is "
        "'text' or 'input_text'.",
    )


_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_BINARY = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufffd]")  # controls, and the replacement character


@dataclass(frozen=True, slots=True)
class _Content:
    raw: bytes
    kind: str = ""  # as declared by a data URL
    charset: str = ""  # likewise


def file_text(part: Mapping[str, Any], where: str) -> str:
    """Reads `file_data`, `file_url` and `filename`, or the text of a file that was read before."""
    name = part.get("filename")
    named = f" named {name!r:.200}" if isinstance(name, str) and name else ""
    text = part.get("text")
    if not isinstance(text, str):
        content = _content(part, where)
        text = _text(content.raw, content.charset)
    if text is None:
        kind = f"of type {content.kind}" if content.kind else "binary"
        raise InvalidRequest.at(
            where, f": the file{named} is {kind}. Text in UTF-8, PDF, DOCX, PPTX and XLSX are read."
        )
    return f"[The file{named} that was attached here:]\n{text}\n[The end of the file{named}.]"


def attached_bytes(part: Mapping[str, Any], where: str) -> bytes | None:
    """The bytes in the part; None where it has none."""
    return _content(part, where).raw if part.get("file_data") or part.get("file_url") else None


def _content(part: Mapping[str, Any], where: str) -> _Content:
    for key in ("file_data", "file_url"):
        value = part.get(key)
        if not isinstance(value, str) or not value:
            continue
        if value[:5].lower() == "data:":
            return _of_data_url(value)
        if key == "file_url":
            raise InvalidRequest.at(
                f"{where}.file_url", "must be an address with http:// or https://, or a data URL."
            )
        return _Content(_from_base64(value) or value.encode("utf-8", "replace"))
    param = f"{where}.file_data"
    raise InvalidRequest.at(param, ": the part has no file. Send its text or its base64.")


def _of_data_url(url: str) -> _Content:
    head, _, data = url[5:].partition(",")
    kind, *options = (word.strip().lower() for word in head.split(";"))
    raw = _from_base64(data) if "base64" in options else None
    charset = next((word.removeprefix("charset=") for word in options if word.startswith("charset=")), "")
    return _Content(raw or unquote_to_bytes(data), kind[:100], charset)


def _from_base64(text: str) -> bytes | None:
    """None if the text is not base64. Accepts line breaks and missing padding."""
    packed = "".join(text.split())
    if len(packed) < len(text) - text.count("\n") - text.count("\r"):
        return None  # words between spaces
    try:
        return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _text(raw: bytes, charset: str) -> str | None:
    """Decodes UTF-8 or the declared charset. It does not guess a charset from the bytes."""
    declared = find_codec(charset) or "utf-8"
    try:
        text = raw.decode(next((name for bom, name in _BOMS.items() if raw.startswith(bom)), declared))
    except UnicodeDecodeError:
        return None
    return None if _BINARY.search(text) else text
