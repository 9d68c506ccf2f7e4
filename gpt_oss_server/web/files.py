"""The files of the playground: read once, compressed once, named by the hash of their content.

Takes a request for a path below `static/`. Returns the file, or 304 if the browser has it.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
POLICY = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # browsers ask each time and mostly hear 304, so an update arrives
    "vary": "accept-encoding",
}


@dataclass(frozen=True, slots=True)
class File:
    plain: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def files() -> dict[str, File]:
    """All files by their path: only what is listed here can be served."""
    return {
        path.relative_to(FOLDER).as_posix(): _file(path)
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in KINDS
    }


def _file(path: Path) -> File:
    plain = path.read_bytes()
    tag = hashlib.sha256(plain).hexdigest()[:20]
    return File(plain, gzip.compress(plain, 6, mtime=0), KINDS[path.suffix], tag)


def answer(file: File, request: Request) -> Response:
    packs = "gzip" in request.headers.get("accept-encoding", "")
    tag = f'"{file.tag}-gzip"' if packs else f'"{file.tag}"'
    headers = {**POLICY, "etag": tag}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if packs:
        headers["content-encoding"] = "gzip"
    return Response(file.packed if packs else file.plain, media_type=file.kind, headers=headers)
