"""The lines of a batch: checked, asked as requests of this process, and written as answers.

Takes lines of JSON, `{"custom_id", "method": "POST", "url", "body"}`. Returns the same answers that clients
get over HTTP, from the same application with all its limits.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Scope

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.http.edge import HEADER, set_caller

MOST_LINES = 50_000
_MOST_ERRORS = 100  # that a batch reports
_SUCCESSES = 300  # statuses below
# Of each side of `usage`: its detail, and what Chat calls the side.
_DETAILS = {"input": ("cached_tokens", "prompt"), "output": ("reasoning_tokens", "completion")}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a line, or to the request of a line that may be sent again after some seconds."""

    line: bytes
    succeeded: bool
    again_after: float | None = None


class Checked:
    """What is wrong with the lines of a file, and how many there are."""

    def __init__(self, endpoint: str) -> None:
        self.total = 0
        self.errors: list[dict[str, Any]] = []
        self._endpoint = endpoint
        self._seen: set[bytes] = set()

    async def read(self, lines: AsyncIterable[bytes]) -> None:
        async for line in lines:
            self.total += 1
            if self.total > MOST_LINES:
                self._add("too_many_requests", f"A batch may have {MOST_LINES:,} lines. Split the file.")
                return
            self._check(line)
            if len(self.errors) >= _MOST_ERRORS:
                return
        if not self.total:
            self._add("empty_file", "The file has no line. Write one request in JSON on each.")

    def _check(self, line: bytes) -> None:
        try:
            request = from_json(line)
        except ValueError as error:
            self._add("invalid_json_line", f"The line is not JSON: {error}.")
            return
        body = request.get("body") if isinstance(request, dict) else None
        name = request.get("custom_id") if isinstance(request, dict) else None
        if not isinstance(request, dict) or not isinstance(body, dict):
            shape = '{"custom_id": "…", "method": "POST", "url": "/v1/…", "body": {…}}'
            self._add("invalid_request", f"The line is not an object like {shape}.")
        elif not isinstance(name, str) or not name:
            self._add("missing_custom_id", "The line has no `custom_id`, a text.", "custom_id")
        elif (digest := hashlib.blake2b(name.encode("utf-8", "surrogatepass")).digest()) in self._seen:
            problem = f"The custom_id {name!r:.80} is in an earlier line too."
            self._add("duplicate_custom_id", problem, "custom_id")
        elif request.get("method") != "POST" or request.get("url") != self._endpoint:
            must = f"`method` must be POST and `url` the batch's endpoint, {self._endpoint}."
            self._add("invalid_url", must, "url")
        elif body.get("stream") or body.get("background"):
            problem = "A batch has no streams and no background responses. Leave the field out."
            self._add("invalid_request", problem, "stream" if body.get("stream") else "background")
        else:
            self._seen.add(digest)

    def _add(self, code: str, message: str, param: str | None = None) -> None:
        self.errors.append({"code": code, "message": message, "line": self.total, "param": param})


async def asked(app: ASGIApp, caller: Caller, endpoint: str, line: bytes, answer_id: str) -> Answer:
    """Sends the request of a line to the application, in the name of the caller."""
    request = from_json(line)
    status, headers, body = await _answer_of(app, caller, endpoint, to_json(request["body"]))
    again = headers.get("retry-after") if status in (429, 503) else None
    response = {"status_code": status, "request_id": headers[HEADER], "body": from_json(body)}
    answer = {"id": answer_id, "custom_id": request["custom_id"], "response": response, "error": None}
    return Answer(to_json(answer), status < _SUCCESSES, None if again is None else float(again))


async def _answer_of(
    app: ASGIApp, caller: Caller, path: str, body: bytes
) -> tuple[int, Mapping[str, str], bytes]:
    """A POST in this process. If it is cancelled, the application finds that its client has left."""
    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": Headers(headers).raw,
        "client": None,
        "server": None,
    }
    set_caller(scope, caller)
    unread, leaves, sent = [body], asyncio.Event(), list[Message]()

    async def receive() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop()}
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    running = asyncio.ensure_future(app(scope, receive, send))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        leaves.set()
        await asyncio.wait({running})
        raise
    start, *parts = sent
    content = b"".join(part.get("body", b"") for part in parts)
    return start["status"], Headers(raw=start["headers"]), content


def unanswered(line: bytes, answer_id: str, code: str, message: str) -> Answer:
    """The answer to a line whose batch has ended before its turn."""
    error = {"code": code, "message": message}
    answer = {"id": answer_id, "custom_id": from_json(line)["custom_id"], "response": None, "error": error}
    return Answer(to_json(answer), succeeded=False)


class Usage:
    """The sum of the tokens of all answers, under the names of the Responses API."""

    def __init__(self) -> None:
        self.unanswered = 0  # lines that were never asked
        self.sum: dict[str, Any] = {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        }

    def add(self, answer: bytes) -> None:
        response = from_json(answer)["response"] or {}
        self.unanswered += not response
        usage = (response.get("body") or {}).get("usage") or {}
        for side, (detail, other) in _DETAILS.items():
            count = usage.get(f"{side}_tokens", usage.get(f"{other}_tokens", 0)) or 0
            details = usage.get(f"{side}_tokens_details") or usage.get(f"{other}_tokens_details") or {}
            self.sum[f"{side}_tokens"] += count
            self.sum["total_tokens"] += count
            self.sum[f"{side}_tokens_details"][detail] += details.get(detail) or 0
