"""A file in a request: a form as browsers and the official SDK send it, or the id of a file."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request

from gpt_oss_server.errors import BodyTooLarge, InvalidRequest
from gpt_oss_server.http.body import decode_json, read_bytes
from gpt_oss_server.http.forms import LONGEST_HEAD, Part, form_parts
from gpt_oss_server.http.validation import whole_number

_SMALLER = "Send a smaller file."
_MOST_ROUND_A_FILE = 1024**2  # bytes of a form besides its file


async def read_upload(request: Request, most: int) -> tuple[str, bytes] | str:
    if _kind(request) == "application/json":
        sent = decode_json(await read_bytes(request, most, advice=_SMALLER))
        file_id = sent.get("file_id") if isinstance(sent, dict) else None
        if not isinstance(file_id, str):
            raise InvalidRequest.at("file_id", "must be the id of a file. Send a new one in a form.")
        return file_id
    async with aclosing(form_of(request, most)) as form:
        part = await file_part(form, "file", {})
        return part.filename, b"".join([piece async for piece in bounded(part.content, most)])


def _kind(request: Request) -> str:
    kind = request.headers.get("content-type", "")[:LONGEST_HEAD]
    return kind.partition(";")[0].strip().lower()


def form_of(request: Request, most: int) -> AsyncGenerator[Part, None]:
    if (kind := _kind(request)) != "multipart/form-data":
        how = "Send a form (multipart/form-data), as the SDKs do."
        raise InvalidRequest(f"A file cannot be sent as {kind!r:.80}. {how}", param="file")
    return form_parts(request, most + _MOST_ROUND_A_FILE, _SMALLER)


async def file_part(form: AsyncIterator[Part], name: str, fields: dict[str, Any]) -> Part:
    """The part with the file. `fields` gets what stands before it."""
    async for part in form:
        if part.name == name and part.filename:
            return part
        await add_field(fields, part)
    raise InvalidRequest(f"The form has no field `{name}` that contains a file with a name.", param=name)


async def add_field(fields: dict[str, Any], part: Part) -> None:
    """Adds a field; `a[b]` is the field `b` of the object `a`."""
    outer, _, inner = part.name.partition("[")
    value: Any = await part.value()
    if not inner:
        fields[outer] = value
        return
    number = whole_number(value)
    into = fields.setdefault(outer, {})
    if isinstance(into, dict):
        into[inner.removesuffix("]")] = value if number is None else number


async def bounded(content: AsyncIterable[bytes], most: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in content:
        size += len(piece)
        if size > most:
            raise BodyTooLarge(
                f"The file is larger than {most:,} bytes, the most that this server takes.", param="file"
            )
        yield piece
