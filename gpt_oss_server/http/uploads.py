"""A file in a request: JSON with base64, or a form as browsers and the official SDK send it.

Takes a request and the size limit of its body. Returns the file's name and bytes, or raises an error that
names the fault. It splits a form at its boundary, which is enough for one file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from email.message import Message
from email.utils import collapse_rfc2231_value

from starlette.requests import Request

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.body import decode_json, read_bytes
from gpt_oss_server.http.large_work import in_thread

_HOW = 'Send a form with the field `file`, or JSON as {"name": "data.csv", "content_base64": "…"}.'

_PLAIN = {"content-encoding": ("identity",), "content-transfer-encoding": ("binary", "8bit", "7bit")}


async def read_upload(request: Request, max_bytes: int) -> tuple[str, bytes]:
    kind = Message()
    kind["content-type"] = request.headers.get("content-type", "")
    body = await read_bytes(request, max_bytes, advice="Send a smaller file.")
    match kind.get_content_type():
        case "application/json":
            return await in_thread(0, lambda: _from_json(body))
        case "multipart/form-data":
            boundary = str(kind.get_param("boundary", ""))
            return await in_thread(0, lambda: _from_form(body, boundary))
        case other:
            raise InvalidRequest(f"A file cannot be sent as {other!r}. {_HOW}", param="file")


def _from_json(body: bytes) -> tuple[str, bytes]:
    upload = decode_json(body)
    if isinstance(upload, dict) and upload.get("file_id") is not None:
        raise InvalidRequest(f"`file_id` is not served, as there is no files API. {_HOW}", param="file_id")
    if not isinstance(upload, dict) or not isinstance(upload.get("name"), str):
        raise InvalidRequest(f"`name` must be the file's name. {_HOW}", param="name")
    content = upload.get("content_base64")
    if not isinstance(content, str):
        raise InvalidRequest(f"`content_base64` must be the file in base64. {_HOW}", param="content_base64")
    try:
        return upload["name"], base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise InvalidRequest(f"`content_base64` is not base64: {error}.", param="content_base64") from None


def _from_form(body: bytes, boundary: str) -> tuple[str, bytes]:
    if not boundary:
        raise InvalidRequest("The form has no boundary in its content-type.", param="file")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode())
    for part in parts[1:]:
        head, separator, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        headers = _headers(head)
        fields = _disposition(headers.get("content-disposition", ""))
        if separator and fields.get("name") == "file" and fields.get("filename"):
            _check_plain(headers)
            return fields["filename"], content
    raise InvalidRequest(f"The form has no field `file` that contains a file. {_HOW}", param="file")


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n"))
    return {key.strip().lower(): value.strip() for key, _, value in lines}


def _check_plain(headers: Mapping[str, str]) -> None:
    """The file in the part must be as it is: an encoded one would be stored as something else."""
    for name, plain in _PLAIN.items():
        if (coding := headers.get(name, plain[0]).lower()) not in plain:
            raise InvalidRequest(f"A file with {name} {coding!r} is not decoded. {_HOW}", param="file")


def _disposition(value: str) -> dict[str, str]:
    """The parameters of a part's content-disposition. Browsers send file names in UTF-8."""
    message = Message()
    message["content-disposition"] = value
    upload = message.get_params(header="content-disposition") or []
    return {name.lower(): collapse_rfc2231_value(text) for name, text in upload[1:]}
