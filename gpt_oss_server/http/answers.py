"""The HTTP answer of an error: its body, its status and the headers that clients act on."""

import math
from urllib.parse import quote

from starlette.responses import JSONResponse

from gpt_oss_server.errors import ApiError, InvalidApiKey, MethodNotAllowed, RateLimitExceeded

BINARY = "application/octet-stream"


def error_answer(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body(), status_code=error.status, headers=headers_of(error))


def attachment(name: str) -> dict[str, str]:
    """The headers of a file that clients or the model made, so that no browser interprets it."""
    return {
        "content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "x-content-type-options": "nosniff",
    }


def headers_of(error: ApiError) -> dict[str, str]:
    headers = {} if error.may_pass else {"x-should-retry": "false"}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
        if isinstance(error, RateLimitExceeded):
            headers["retry-after-ms"] = str(max(1, math.ceil(1000 * error.retry_after)))
    if isinstance(error, InvalidApiKey):
        headers["www-authenticate"] = "Bearer"
    if error.status == 426:
        headers["upgrade"] = "websocket"
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    return headers
