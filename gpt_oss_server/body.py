"""Request bodies: bounded, decoded once, and every way they can be wrong told in a sentence."""

from __future__ import annotations

import json
import re
from math import isfinite

from starlette.requests import Request

from gpt_oss_server.errors import BodyTooLarge, InvalidJson, InvalidRequest

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
MAX_DEPTH = 100  # serialisers and schema readers recurse; no honest request comes near


async def read_json(request: Request, max_bytes: int) -> object:
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding != "identity":
        raise InvalidRequest(f"Request bodies with content-encoding {coding!r} are not read. Send it plain.")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise BodyTooLarge(
                f"The request body is larger than {max_bytes:,} bytes. Send less, or start the server with a "
                "larger --max-body-bytes."
            )
    return decode_json(bytes(body))


def decode_json(body: bytes) -> object:
    if not body.strip():
        raise InvalidJson("The request body is empty; it must be a JSON object.")
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_constant=no_constant, parse_float=finite)
    except UnicodeDecodeError as error:
        raise InvalidJson(
            f"The request body is not UTF-8 text: {error.reason} at byte {error.start}."
        ) from None
    except json.JSONDecodeError as error:
        raise InvalidJson(
            f"The request body is not valid JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, "
            f"column {error.colno}."
        ) from None
    except RecursionError:
        raise InvalidJson("The request body is nested too deeply to be read.") from None
    except ValueError as error:  # NaN and Infinity, and integers of more digits than Python converts
        raise InvalidJson(f"The request body is not valid JSON: {error}") from None
    if is_too_deep(text, value):
        raise InvalidJson(f"The request body is nested more than {MAX_DEPTH} levels deep.")
    return whole_characters(text, value)


def is_too_deep(text: str, value: object) -> bool:
    """Of the value that this JSON is: whether what reads it step by step could not come to its end."""
    return text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH)


def whole_characters(text: str, value: object) -> object:
    """The value that this JSON is, as it can be written back."""
    return without_lone_surrogates(value) if _SURROGATE.search(text) else value


def without_lone_surrogates(value: object) -> object:
    """JSON can escape half a character, which nothing can write back; each becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):  # which nothing can write back
        raise ValueError(f"{number[:40]} is out of the range of numbers.")
    return value


def no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value.")


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
