"""A form in a request, as browsers and the official SDK send it, read while it arrives.

It holds one piece of the body at a time, and its time grows with the length of the body alone.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import count
from urllib.parse import unquote

from starlette.requests import Request

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.body import stream_bytes

MOST_PARTS = 100
LONGEST_HEAD = 8 * 1024  # bytes of a part's headers; and of a content-type
_LONGEST_BOUNDARY = 70  # RFC 2046
_LONGEST_VALUE = 64 * 1024  # bytes of a field that is no file
_PLAIN = {"content-encoding": ("identity",), "content-transfer-encoding": ("binary", "8bit", "7bit")}
_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;]*))')
_EXTENDED = re.compile(r"([\w-]*)'[^']*'(.*)", re.DOTALL)  # RFC 5987


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    filename: str  # "" for a field that is no file
    content: AsyncIterator[bytes]  # what is left unread is skipped with the next part

    async def value(self) -> str:
        """The text of a field that is no file."""
        read = bytearray()
        async for piece in self.content:
            read += piece
            if len(read) > _LONGEST_VALUE:
                problem = f"`{self.name[:99]}` has more than {_LONGEST_VALUE:,} bytes. Send a shorter value."
                raise InvalidRequest(problem, param=self.name)
        return read.decode("utf-8", "replace")


async def form_parts(request: Request, max_bytes: int, advice: str) -> AsyncGenerator[Part, None]:
    """At most `MOST_PARTS` parts. `advice` ends the error of a body that is too large."""
    kind = request.headers.get("content-type", "")[:LONGEST_HEAD]
    boundary = parameters(kind).get("boundary", "")
    if not 0 < len(boundary) <= _LONGEST_BOUNDARY:
        raise InvalidRequest(
            "The form has no boundary of 1 to 70 characters in its content-type.", param="file"
        )
    form = _Form(stream_bytes(request, max_bytes, advice=advice), boundary)
    await form.skip()
    for number in count():
        if (head := await form.head()) is None:
            break
        if number == MOST_PARTS:
            raise InvalidRequest(
                f"The form has more than {MOST_PARTS} parts. Send a zip file of many files.", param="files"
            )
        headers = _headers(head)
        fields = parameters(headers.get("content-disposition", ""))
        if filename := fields.get("filename", ""):
            _check_plain(headers)
        yield Part(fields.get("name", ""), filename, content := form.content())
        async for _ in content:
            pass
    await form.drain()


class _Form:
    def __init__(self, body: AsyncIterator[bytes], boundary: str) -> None:
        self._body = body
        self._line = b"\r\n--" + boundary.encode("latin-1", "replace")
        self._read = bytearray(b"\r\n")  # of the body, and not passed on yet

    async def skip(self) -> None:
        """Skips what stands before the first part."""
        async for _ in self.content():
            pass

    async def content(self) -> AsyncGenerator[bytes, None]:
        """What stands before the next line with the boundary, which is read too."""
        while (at := self._read.find(self._line)) < 0:
            if ready := max(len(self._read) - len(self._line) + 1, 0):
                yield self._taken(ready)
            if not await self._more():
                raise InvalidRequest("The form ends before its last boundary. Send it whole.", param="file")
        if at:
            yield self._taken(at)
        del self._read[: len(self._line)]

    async def head(self) -> bytes | None:
        """The headers of the part that begins here; None: the form has ended."""
        while (end := self._read.find(b"\r\n\r\n", 0, LONGEST_HEAD + 2)) < 0 and self._read[:2] != b"--":
            if len(self._read) > LONGEST_HEAD:
                raise InvalidRequest(
                    f"A part of the form has more than {LONGEST_HEAD:,} bytes of headers.", param="file"
                )
            if not await self._more():
                raise InvalidRequest("The form ends within a part's headers. Send it whole.", param="file")
        return None if self._read[:2] == b"--" else self._taken(end + 4)

    async def drain(self) -> None:
        """Reads the rest of the body, so that its size is checked."""
        self._read.clear()
        while await self._more():
            self._read.clear()

    async def _more(self) -> bool:
        piece = await anext(self._body, None)
        self._read += piece or b""
        return piece is not None

    def _taken(self, count: int) -> bytes:
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken


def _headers(head: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n"))
    return {key.strip().lower(): value.strip() for key, _, value in lines}


def _check_plain(headers: Mapping[str, str]) -> None:
    """The file in the part must be as it is: an encoded one would be stored as something else."""
    for name, plain in _PLAIN.items():
        if (coding := headers.get(name, plain[0]).lower()) not in plain:
            raise InvalidRequest(
                f"A file with {name} {coding!r:.80} is not decoded. Send it as it is.", param="file"
            )


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
