"""The files of the pages: read once, and served by their names only, compressed if the browser takes that.

`static/` is the playground, `swagger/` the API reference, of which `vendored.json` states the origin, version
and hashes: Swagger UI's files, which this package contains compressed.
"""

import gzip
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

STATIC, SWAGGER = Path(__file__).parent / "static", Path(__file__).parent / "swagger"
_GZIP = b"\x1f\x8b"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_POLICY = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # browsers ask each time and mostly get 304, so an update arrives
    "vary": "accept-encoding",
}
# Diagrams are drawn in a frame without an origin, where 'self' names nothing. Their styles are inline, which
# the page itself forbids.
_NONCE = secrets.token_urlsafe(16)
_FRAME_POLICY = _POLICY | {
    "content-security-policy": f"default-src 'none'; script-src 'nonce-{_NONCE}'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
}
_FRAME = "diagram/frame.html"
_FOR_A_DAY = {"cache-control": "public, max-age=86400", "vary": "accept-encoding"}


@dataclass(frozen=True, slots=True)
class File:
    plain: bytes
    packed: bytes
    kind: str
    headers: Mapping[str, str]
    tag: str  # names the content, so that browsers can ask whether it is still the same


@cache
def static_files() -> dict[str, File]:
    """The playground's files by their path: only what is listed here can be served."""
    files = _files_of(STATIC, _POLICY)
    frame = files[_FRAME].plain.replace(b"{nonce}", _NONCE.encode())
    files[_FRAME] = _tagged(frame, KINDS[".html"], _FRAME_POLICY)
    return files


@cache
def swagger_files() -> dict[str, File]:
    """The same for the API reference's files."""
    return _files_of(SWAGGER, _FOR_A_DAY)


def _files_of(folder: Path, headers: Mapping[str, str]) -> dict[str, File]:
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix().removesuffix(".gz")
        if kind := KINDS.get(Path(name).suffix):
            files[name] = _tagged(path.read_bytes(), kind, headers)
    return files


def _tagged(content: bytes, kind: str, headers: Mapping[str, str] = _POLICY) -> File:
    """Of the content of a file, which may be kept compressed."""
    is_packed = content.startswith(_GZIP)
    plain = gzip.decompress(content) if is_packed else content
    packed, tag = content if is_packed else gzip.compress(plain, 6, mtime=0), hashlib.sha256(plain)
    return File(plain, packed, kind, headers, tag.hexdigest()[:20])


@cache
def page_one_deeper() -> File:
    """The playground's page for the address of a conversation: its links stay relative, for a path prefix."""
    page = static_files()["index.html"]
    return _tagged(page.plain.replace(b'"web/', b'"../web/').replace(b'"docs"', b'"../docs"'), page.kind)


def file_response(file: File, request: Request) -> Response:
    is_packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {**file.headers, "etag": f'"{file.tag}-gzip"' if is_packed else f'"{file.tag}"'}
    if headers["etag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if not is_packed:
        return Response(file.plain, media_type=file.kind, headers=headers)
    headers["content-encoding"] = "gzip"
    return Response(file.packed, media_type=file.kind, headers=headers)
