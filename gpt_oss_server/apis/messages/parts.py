"""Blocks that users and tools send: text, images, documents, search results.

Takes a block and its place. Returns content parts of the Responses API, or raises a 400 that names the place.
"""

import base64
from typing import Any

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.validation import json_type, text_field

Part = dict[str, Any]


def content_parts(content: Any, where: str) -> list[Part]:
    """The parts of a text or of several blocks."""
    if content is None or isinstance(content, str):
        return [_written(content or "")]
    if not isinstance(content, list):
        raise InvalidRequest.at(where, "must be a text or an array of blocks.")
    return [part for index, block in enumerate(content) for part in parts_of(block, f"{where}[{index}]")]


def parts_of(block: Any, where: str) -> list[Part]:
    if not isinstance(block, dict):
        raise InvalidRequest.at(where, f"must be an object, but is {json_type(block)}.")
    match block.get("type"):
        case "text":
            return [_written(text_block(block, where))]
        case "image":
            return [{"type": "input_image"}]
        case "document":
            return _document(block, where)
        case "search_result":
            _check_no_citations(block, where)
            head = [str(block[key]) for key in ("title", "source") if block.get(key)]
            return [_written("\n".join(head)), *content_parts(block.get("content"), f"{where}.content")]
        case "tool_reference":
            return [_written(text_field(block, "tool_name", where))]
        case kind:
            raise UnsupportedField.at(
                f"{where}.type", f": blocks of type {kind!r} are not served here. Leave the block out."
            )


def text_block(block: Any, where: str) -> str:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    if not isinstance(text, str):
        raise InvalidRequest.at(where, "must be a text block.")
    return text


def _written(text: str) -> Part:
    return {"type": "input_text", "text": text}


def _document(block: Part, where: str) -> list[Part]:
    _check_no_citations(block, where)
    at, written = f"{where}.source", block.get("source")
    source: Part = written if isinstance(written, dict) else {}
    context = [_written(block["context"])] if isinstance(block.get("context"), str) else []
    file: Part = {"type": "input_file", "filename": block.get("title")}
    match source.get("type"):
        case "text":
            data = base64.b64encode(text_field(source, "data", at).encode()).decode()
            return [*context, {**file, "file_data": f"data:text/plain;base64,{data}"}]
        case "base64":
            kind, data = source.get("media_type"), text_field(source, "data", at)
            return [*context, {**file, "file_data": f"data:{kind};base64,{data}"}]
        case "content":
            return [*context, *content_parts(source.get("content"), f"{at}.content")]
        case "url":
            return [*context, {**file, "file_url": source.get("url")}]
        case "file":
            return [*context, {**file, "file_id": source.get("file_id")}]
        case kind:
            raise InvalidRequest.at(f"{at}.type", f": {kind!r} is not a type of source.")


def _check_no_citations(block: Part, where: str) -> None:
    citations = block.get("citations")
    if isinstance(citations, dict) and citations.get("enabled"):
        raise UnsupportedField.at(
            f"{where}.citations", ": only pages that the browser read are cited. Leave it out."
        )
