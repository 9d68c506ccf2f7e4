"""Reads request bodies: limits their size, decodes them once, and explains every mistake in a sentence."""

import json
from collections.abc import AsyncGenerator
from dataclasses import replace

from starlette.requests import Request

from gpt_oss_server import json_values
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import BodyTooLarge, InvalidJson, InvalidRequest
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.large_work import LARGE_INPUT, in_thread, without_collections

_DIGITS = 18  # of a length: Python refuses to convert several thousand
_SEND_LESS = "Send less, or start the server with a larger --max-body-bytes."


async def read_json(request: Request, max_bytes: int) -> tuple[Caller, object]:
    """The caller, who answers for the size of the body, and the body's value. A thread parses a large one."""
    body = await read_bytes(request, max_bytes)
    caller = replace(caller_of(request.scope), body_size=len(body))
    if len(body) <= LARGE_INPUT:
        return caller, decode_json(body)
    return caller, await in_thread(len(body), lambda: decode_json(body))


async def read_bytes(request: Request, max_bytes: int, *, advice: str = _SEND_LESS) -> bytes:
    """The body as it was sent; `advice` ends the error of one that is too large."""
    body = bytearray()
    async for chunk in stream_bytes(request, max_bytes, advice=advice):
        body += chunk
    return bytes(body)


async def stream_bytes(request: Request, max_bytes: int, *, advice: str) -> AsyncGenerator[bytes, None]:
    """The body in pieces, while it arrives."""
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding != "identity":
        raise InvalidRequest(
            f"Request bodies with content-encoding {coding!r} are not supported. Send them uncompressed."
        )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:_DIGITS]) > max_bytes:
        raise _too_large(max_bytes, advice)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes, advice)
        yield chunk


def _too_large(max_bytes: int, advice: str) -> BodyTooLarge:
    return BodyTooLarge(f"The request body is larger than {max_bytes:,} bytes. {advice}")


def decode_json(body: bytes) -> object:
    if not body.strip():
        raise InvalidJson("The request body is empty; it must be a JSON object.")
    if json_values.has_too_many_values(body):
        raise BodyTooLarge(f"The request body has more than {json_values.MAX_VALUES:,} values. Send fewer.")
    try:
        text = body.decode("utf-8-sig")
        with without_collections():  # JSON leaves no garbage, and the search for it stops all threads
            value = json.loads(text, parse_constant=json_values.no_constant, parse_float=json_values.finite)
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
    except ValueError as error:  # NaN, Infinity, and integers with more digits than Python converts
        raise InvalidJson(f"The request body is not valid JSON: {error}") from None
    if json_values.is_too_deep(text, value):
        raise InvalidJson(f"The request body is nested more than {json_values.MAX_DEPTH} levels deep.")
    return json_values.whole_characters(text, value)
