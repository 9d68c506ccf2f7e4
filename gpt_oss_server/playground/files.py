"""The files of the pages: read once, and served by their names only, compressed if the browser takes that.

Takes the request for a file of `static/` (the playground) or `swagger/` (the API reference). Returns the
file, or 304 if the browser has it. `swagger/vendored.json` states the origin, version and hashes of Swagger
UI's files, which this package contains compressed.
"""

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

STATIC, SWAGGER = Path(__file__).parent / "static", Path(__file__).parent / "swagger"
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
_FOR_A_DAY = {"cache-control": "public, max-age=86400", "vary": "accept-encoding"}


@dataclass(frozen=True, slots=True)
class File:
    plain: bytes
    packed: bytes | None  # None: never compressed
    kind: str
    headers: Mapping[str, str]
    tag: str | None = None  # names the content, so that browsers can ask whether it is still the same


@cache
def static_files() -> dict[str, File]:
    """The playground's files by their path: only what is listed here can be served."""
    files = {}
    for path in sorted(STATIC.rglob("*")):
        if path.suffix in KINDS:
            files[path.relative_to(STATIC).as_posix()] = _tagged(path.read_bytes(), KINDS[path.suffix])
    return files


def _tagged(plain: bytes, kind: str) -> File:
    packed, tag = gzip.compress(plain, 6, mtime=0), hashlib.sha256(plain).hexdigest()[:20]
    return File(plain, packed, kind, _POLICY, tag)


@cache
def page_one_deeper() -> File:
    """The playground's page for the address of a conversation: its links stay relative, for a path prefix."""
    page = static_files()["index.html"]
    return _tagged(page.plain.replace(b'"web/', b'"../web/').replace(b'"docs"', b'"../docs"'), page.kind)


@cache
def swagger_files() -> dict[str, File]:
    """The same for the API reference's files."""
    files = {}
    for path in SWAGGER.iterdir():
        packed = path.read_bytes() if path.suffix == ".gz" else None
        name = path.name.removesuffix(".gz")
        if kind := KINDS.get(Path(name).suffix):
            plain = path.read_bytes() if packed is None else gzip.decompress(packed)
            files[name] = File(plain, packed, kind, _FOR_A_DAY)
    return files


def file_response(file: File, request: Request) -> Response:
    packed = file.packed if "gzip" in request.headers.get("accept-encoding", "") else None
    headers = dict(file.headers)
    if file.tag is not None:
        headers["etag"] = f'"{file.tag}"' if packed is None else f'"{file.tag}-gzip"'
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
    if packed is not None:
        headers["content-encoding"] = "gzip"
    return Response(file.plain if packed is None else packed, media_type=file.kind, headers=headers)
