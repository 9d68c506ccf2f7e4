"""Calls of MCP: the model's arguments, and results as text and as data for the API's item."""

import json
from typing import Any, NoReturn

import mcp_types as types

from tools.mcp.failures import McpFailure
from tools.tool import ToolOutput, cut, encodable

OWN = "gpt_oss_server"  # in structured content: the output of one of this project's tools
OUTPUT_CHARS = 1_000_000  # of one result's text, of which the model may read less
_IMAGE_CHARS = 8_000_000  # of base64, for all images of one result together
_NO_TEXT = "it cannot be shown as text"


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments; an empty text and null mean none. Every text in the result can be encoded."""
    if not text.strip():
        return {}
    try:
        value = json.loads(encodable(text), parse_constant=_refuse)
    except RecursionError as error:
        raise McpFailure("The arguments are nested too deeply.", lost=False) from error
    except ValueError as error:
        where = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        message = f"The arguments are not valid JSON{where}. Send one JSON object."
        raise McpFailure(message, lost=False) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise McpFailure("The arguments must be one JSON object.", lost=False)
    # An escaped lone surrogate is valid JSON but not valid UTF-8.
    cleaned: dict[str, Any] = json.loads(encodable(json.dumps(value, ensure_ascii=False)))
    return cleaned


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def read_result(result: types.CallToolResult) -> ToolOutput:
    """`details` has the images, if any: `{"mime_type", "data"}`, with the data in base64 as received."""
    parts = [_part(block) for block in result.content]
    if not any(parts) and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False, default=str)]
    nothing = "(the tool answered with nothing)"
    if result.is_error:
        nothing = "The tool failed without giving a reason."
    text = "\n".join(part for part in parts if part) or nothing
    details: dict[str, Any] = {"images": images} if (images := _images(result)) else {}
    if isinstance(own := (result.structured_content or {}).get(OWN), dict):
        details[OWN] = own
    return ToolOutput(cut(text, OUTPUT_CHARS), result.is_error, details)


def own_output(output: ToolOutput) -> ToolOutput:
    """The output as this project's own tool made it, if its server sent it along; pictures are sent once."""
    own, pictures = output.details.get(OWN), list(output.details.get("images", ()))
    if own is None or not isinstance(own.get("text"), str) or not isinstance(own.get("details"), dict):
        return output
    details = dict(own["details"])
    if isinstance(count := details.get("images"), int):
        details["images"] = pictures[:count]
        del pictures[:count]
    if isinstance(outputs := details.get("outputs"), list):
        entries = [dict(entry) for entry in outputs if isinstance(entry, dict)]
        for entry in entries:
            if entry.get("type") == "image" and pictures:
                picture = pictures.pop(0)
                entry["url"] = f"data:{picture['mime_type']};base64,{picture['data']}"
        details["outputs"] = [entry for entry in entries if entry.get("type") != "image" or "url" in entry]
    return ToolOutput(cut(own["text"], OUTPUT_CHARS), output.failed, details)


def own_result(output: ToolOutput) -> dict[str, Any]:
    """The structured content of a result, from which `own_output` restores the output."""
    details = dict(output.details)
    if "images" in details:
        details["images"] = len(details["images"])
    if "outputs" in details:
        details["outputs"] = [
            {"type": "image"} if entry.get("type") == "image" else entry for entry in details["outputs"]
        ]
    return {OWN: {"text": output.text, "details": details}}


def _part(block: Any) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(mime_type=kind, data=data):
            return f"[a picture, {kind}, {_bytes(data)} bytes: {_NO_TEXT}]"
        case types.AudioContent(mime_type=kind, data=data):
            return f"[a sound, {kind}, {_bytes(data)} bytes: {_NO_TEXT}]"
        case types.ResourceLink(name=name, uri=uri):
            return f"[a resource: {name} at {uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            return f"[the resource {uri}]\n{text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            return f"[the resource {uri}, {kind or 'binary'}, {_bytes(data)} bytes: {_NO_TEXT}]"
        case _:
            return f"[content of the kind {type(block).__name__}: {_NO_TEXT}]"


def _bytes(base64_text: str) -> int:
    return len(base64_text.rstrip("=")) * 3 // 4


def _images(result: types.CallToolResult) -> list[dict[str, str]]:
    kept: list[dict[str, str]] = []
    room = _IMAGE_CHARS
    for block in result.content:
        if isinstance(block, types.ImageContent) and len(block.data) <= room:
            room -= len(block.data)
            kept.append({"mime_type": block.mime_type, "data": block.data})
    return kept
