"""The files of Swagger UI, which this package contains, compressed.

Takes a file's name and returns an answer. `swagger/vendored.json` states their origin, version and hashes.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "swagger"
KINDS = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "start.js": "text/javascript",
}
_DAY = "public, max-age=86400"


def swagger_file(name: str, request: Request) -> Response:
    """One of `KINDS`, compressed if the client accepts that."""
    headers = {"cache-control": _DAY, "vary": "accept-encoding"}
    if name == "start.js":
        return Response(_bytes(name), media_type=KINDS[name], headers=headers)
    packed = _bytes(f"{name}.gz")
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(packed, media_type=KINDS[name], headers={**headers, "content-encoding": "gzip"})
    return Response(gzip.decompress(packed), media_type=KINDS[name], headers=headers)


@cache
def _bytes(name: str) -> bytes:
    return (FOLDER / name).read_bytes()
