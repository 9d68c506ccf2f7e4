"""A file in a request: JSON with base64, or a form as browsers and the official SDK send it.

Takes a request and the size limit of its body. Returns the file's name and bytes, or the id of a file that
was uploaded before, or raises an error that names the fault.
"""

import base64
import binascii

from starlette.requests import Request

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.body import decode_json, read_bytes
from gpt_oss_server.http.forms import LONGEST_HEAD, MOST_PARTS, form_parts
from gpt_oss_server.http.large_work import in_thread

_SMALLER = "Send a smaller file."
_HOW = 'Send a form with the field `file`, or JSON as {"name": "data.csv", "content_base64": "…"}.'


async def read_upload(request: Request, max_bytes: int) -> tuple[str, bytes] | str:
    kind = request.headers.get("content-type", "")[:LONGEST_HEAD]
    match kind.partition(";")[0].strip().lower():
        case "application/json":
            body = await read_bytes(request, max_bytes, advice=_SMALLER)
            return await in_thread(0, lambda: _from_json(body))
        case "multipart/form-data":
            return await _from_form(request, max_bytes)
        case other:
            raise InvalidRequest(f"A file cannot be sent as {other!r:.80}. {_HOW}", param="file")


def _from_json(body: bytes) -> tuple[str, bytes] | str:
    upload = decode_json(body)
    if isinstance(upload, dict) and isinstance(file_id := upload.get("file_id"), str):
        return file_id
    if not isinstance(upload, dict) or not isinstance(upload.get("name"), str):
        raise InvalidRequest(f"`name` must be the file's name. {_HOW}", param="name")
    content = upload.get("content_base64")
    if not isinstance(content, str):
        raise InvalidRequest(f"`content_base64` must be the file in base64. {_HOW}", param="content_base64")
    try:
        return upload["name"], base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"`content_base64` is not base64: {error}.", param="content_base64") from None


async def _from_form(request: Request, max_bytes: int) -> tuple[str, bytes]:
    found: tuple[str, bytes] | None = None
    async for part in form_parts(request, max_bytes, _SMALLER):
        if found is None and part.name == "file" and part.filename:
            found = part.filename, b"".join([piece async for piece in part.content])
    if found is None:
        raise InvalidRequest(
            f"The form has no field `file` that contains a file among its first {MOST_PARTS} fields. {_HOW}",
            param="file",
        )
    return found
