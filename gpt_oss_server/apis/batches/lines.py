"""The lines of a batch: checked, asked as requests of this process, and written as answers.

Takes lines of JSON, `{"custom_id", "method": "POST", "url", "body"}`. Returns the same answers that clients get
over HTTP, from the same application with all its limits.
"""

import hashlib
from collections.abc import AsyncIterable
from dataclasses import dataclass
from typing import Any

import httpx
from pydantic_core import from_json, to_json
from starlette.types import ASGIApp, Receive, Scope, Send

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.http.edge import HEADER, set_caller

MOST_LINES = 50_000
_MOST_ERRORS = 100  # that a batch reports
_SUCCESSES = 300  # statuses below


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

    async def as_caller(scope: Scope, receive: Receive, send: Send) -> None:
        set_caller(scope, caller)
        await app(scope, receive, send)

    # The host is one that every server takes for itself.
    transport = httpx.ASGITransport(as_caller, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", trust_env=False, timeout=None) as client:
        got = await client.post(
            endpoint, content=to_json(request["body"]), headers={"content-type": "application/json"}
        )
    again = got.headers.get("retry-after") if got.status_code in (429, 503) else None
    response = {
        "status_code": got.status_code,
        "request_id": got.headers[HEADER],
        "body": from_json(got.content),
    }
    answer = {"id": answer_id, "custom_id": request["custom_id"], "response": response, "error": None}
    return Answer(to_json(answer), got.status_code < _SUCCESSES, None if again is None else float(again))


def unanswered(line: bytes, answer_id: str, code: str, message: str) -> Answer:
    """The answer to a line whose batch has ended before its turn."""
    error = {"code": code, "message": message}
    answer = {"id": answer_id, "custom_id": from_json(line)["custom_id"], "response": None, "error": error}
    return Answer(to_json(answer), succeeded=False)


class Usage:
    """The sum of the tokens of all answers, under the names of the Responses API."""

    _NAMES = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
    _DETAILS = {"input": ("cached_tokens", "prompt"), "output": ("reasoning_tokens", "completion")}

    def __init__(self) -> None:
        self.sum: dict[str, Any] = {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        }

    def add(self, answer: bytes) -> None:
        response = from_json(answer)["response"] or {}
        usage = (response.get("body") or {}).get("usage") or {}
        for side, (detail, other) in self._DETAILS.items():
            count = usage.get(f"{side}_tokens", usage.get(f"{other}_tokens", 0)) or 0
            details = usage.get(f"{side}_tokens_details") or usage.get(f"{other}_tokens_details") or {}
            self.sum[f"{side}_tokens"] += count
            self.sum["total_tokens"] += count
            self.sum[f"{side}_tokens_details"][detail] += details.get(detail) or 0
