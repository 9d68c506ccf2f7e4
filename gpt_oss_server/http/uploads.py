"""A file in a request: JSON with base64, or a form as browsers and the official SDK send it.

Takes a request and the size limit of its body. Returns the file's name and bytes, or raises an error that
names the fault. It reads a form once, up to its file, in time that grows with its length alone.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from urllib.parse import unquote

from starlette.requests import Request

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.body import decode_json, read_bytes
from gpt_oss_server.http.large_work import in_thread

_HOW = 'Send a form with the field `file`, or JSON as {"name": "data.csv", "content_base64": "…"}.'

_PLAIN = {"content-encoding": ("identity",), "content-transfer-encoding": ("binary", "8bit", "7bit")}
_MOST_PARTS = 100  # of a form, before its file
_LONGEST_HEAD = 8 * 1024  # bytes of a part's headers; and of a content-type
_LONGEST_BOUNDARY = 70  # RFC 2046
_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))')
_EXTENDED = re.compile(r"([\w-]*)'[^']*'(.*)", re.DOTALL)  # RFC 5987


async def read_upload(request: Request, max_bytes: int) -> tuple[str, bytes]:
    kind = request.headers.get("content-type", "")[:_LONGEST_HEAD]
    body = await read_bytes(request, max_bytes, advice="Send a smaller file.")
    match kind.partition(";")[0].strip().lower():
        case "application/json":
            return await in_thread(0, lambda: _from_json(body))
        case "multipart/form-data":
            boundary = parameters(kind).get("boundary", "")
            return await in_thread(0, lambda: _from_form(body, boundary))
        case other:
            raise InvalidRequest(f"A file cannot be sent as {other!r:.80}. {_HOW}", param="file")


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
    if not 0 < len(boundary) <= _LONGEST_BOUNDARY:
        raise InvalidRequest(
            "The form has no boundary of 1 to 70 characters in its content-type.", param="file"
        )
    line = b"\r\n--" + boundary.encode("latin-1", "replace")
    body = b"\r\n" + body
    at = body.find(line)
    for _ in range(_MOST_PARTS):
        if at < 0:
            break
        start = at + len(line) + 2  # after the line's own end
        if (head_end := body.find(b"\r\n\r\n", start - 2, start + _LONGEST_HEAD)) >= 0:
            headers = _headers(body[start:head_end])
            fields = parameters(headers.get("content-disposition", ""))
            if fields.get("name") == "file" and fields.get("filename"):
                _check_plain(headers)
                end = body.find(line, head_end)
                return fields["filename"], body[head_end + 4 : end if end >= 0 else len(body)]
        elif len(body) - start > _LONGEST_HEAD:
            raise InvalidRequest(
                f"A part of the form has more than {_LONGEST_HEAD:,} bytes of headers.", param="file"
            )
        at = body.find(line, start)
    raise InvalidRequest(
        f"The form has no field `file` that contains a file among its first {_MOST_PARTS} fields. {_HOW}",
        param="file",
    )


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n"))
    return {key.strip().lower(): value.strip() for key, _, value in lines}


def _check_plain(headers: Mapping[str, str]) -> None:
    """The file in the part must be as it is: an encoded one would be stored as something else."""
    for name, plain in _PLAIN.items():
        if (coding := headers.get(name, plain[0]).lower()) not in plain:
            raise InvalidRequest(f"A file with {name} {coding!r:.80} is not decoded. {_HOW}", param="file")


def parameters(value: str) -> dict[str, str]:
    """The parameters of a header, read in one pass. Browsers send file names in UTF-8; `filename*` wins."""
    values: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(value):
        values[name.lower()] = re.sub(r'\\(["\\])', r"\1", quoted) if quoted else plain.strip()
    for name in [name for name in values if name.endswith("*")]:
        if extended := _EXTENDED.fullmatch(values.pop(name)):
            values[name[:-1]] = _decoded(extended[2], extended[1])
    return values


def _decoded(text: str, charset: str) -> str:
    try:
        return unquote(text, charset or "utf-8", "replace")
    except LookupError:
        return unquote(text)
