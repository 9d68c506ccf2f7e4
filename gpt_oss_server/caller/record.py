"""The record of one request: a line when it arrives, and one when it ends, however it ends.

The edge begins and ends it; the run of an answer notes its id, its tokens and its finish. The record is found
by context, so that no room has to pass it on. It costs nothing per token.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from gpt_oss_server.errors import ApiError

ENDS = logging.getLogger("gpt_oss_server.requests")
ARRIVALS = logging.getLogger("gpt_oss_server.requests.arrivals")
CLIENT_LEFT = 499  # a status that no client sees
_ENDED = "request ended"
KEY_NAME = "key_name"  # in the state of a scope: the name of the request's key
_MOST_BODY = 64 * 1024  # bytes of an error's body that are read for the reason
_SHORT = 200  # characters of a name that a client chose
_LONGEST = 1_000  # characters of a reason
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_NAMED = re.compile(r"`([^`]*)`")  # a field of the API, or a key that the client chose
_NAME = re.compile(r"[^\s'\"]{1,80}")
_UNPAIRED = re.compile(r"""(?<!\w)['"].*""", re.DOTALL)

RECORD: ContextVar[RequestRecord | None] = ContextVar("request_record", default=None)


class RequestRecord:
    def __init__(
        self, request_id: str, method: str, path: str, state: Mapping[str, Any], client: str
    ) -> None:
        self.id, self.method, self.path = request_id, method, path
        self.refused = False  # the answer's status is an error's
        self._state, self._client = state, client
        self._began = time.monotonic()
        self._status: int | None = None
        self._left = self._is_over = False
        self._fields: dict[str, Any] = {}
        self._body = b""

    @classmethod
    def of_no_request(cls) -> RequestRecord:
        """For a background response that another server began."""
        record = cls("", "", "", {}, "")
        record._is_over = True
        return record

    # The edge -----------------------------------------------------------------------------------------

    def arrived(self) -> None:
        level, path = logging.DEBUG if self._is_probe else logging.INFO, _harmless(self.path)
        fields = {"request_id": self.id, "method": self.method, "path": path, "client": self._client}
        extra = _extra("request arrived", fields)
        ARRIVALS.log(level, "%s %s arrived", self.method, path, extra=extra)

    def answered(self, status: int) -> None:
        self._status, self.refused = status, status >= 400
        self._left = self._left or status == CLIENT_LEFT

    @property
    def status(self) -> int:
        """0 before the answer has begun."""
        return self._status or 0

    def read_error(self, body: bytes) -> None:
        """A piece of an error's body, which has the reason."""
        if len(self._body) < _MOST_BODY:
            self._body += body

    def left(self) -> None:
        """The client has disconnected before the end."""
        self._left = True

    def cut(self) -> None:
        self._fields["finish"] = "cut off"

    def ended(self) -> None:
        self._is_over = True
        if self._body:
            self._fields |= _reason_of(self._body)
        self._log(_ENDED)

    # The run of an answer -----------------------------------------------------------------------------

    def note(self, **fields: Any) -> None:
        """The end of a background response, whose request has ended before."""
        self._fields |= {name: value for name, value in fields.items() if value is not None}
        if self._is_over:
            self._status, self._left = None, False  # those of the request
            self._log("background response ended")

    def part(self, what: str) -> RequestRecord:
        """The record of one of several requests that come over this connection."""
        record = RequestRecord(self.id, what, self.path, self._state, self._client)
        record.arrived()
        return record

    # The line -----------------------------------------------------------------------------------------

    def _log(self, event: str) -> None:
        level = self._level()
        if not ENDS.isEnabledFor(level):
            return
        fields = self._all_fields()
        outcome = " ".join(str(fields[name]) for name in ("status", "finish") if name in fields)
        head = f"{self.method} {_harmless(self.path)}".rstrip() if event == _ENDED else event
        ENDS.log(level, "%s %s", head, outcome or "ended", extra=_extra(event, fields))

    def _level(self) -> int:
        status = self._status or 0
        # That the server drains or cannot generate has a line of its own, which probes would repeat.
        if self._is_probe and (status < 400 or status == 503):
            return logging.DEBUG
        return logging.WARNING if status >= 500 else logging.INFO

    @property
    def _is_probe(self) -> bool:
        """Whether it asks for the server's state or a page's files, which come in great number."""
        return self.method in ("GET", "HEAD") and not self.path.startswith("/v1/")

    def _all_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"request_id": self.id, "method": self.method, "path": _harmless(self.path)}
        if self._status is not None:
            fields["status"] = self._status
        fields |= self._fields
        if self._left:
            fields["finish"] = "client left"
        fields["seconds"] = round(time.monotonic() - self._began, 3)
        fields["key"] = self._state.get(KEY_NAME)
        fields["client"] = self._client
        return {name: value for name, value in fields.items() if value not in (None, "")}


def note_answer(*, model: str, error: ApiError | None, **fields: Any) -> None:
    """What a run knows of its answer, once it has ended."""
    record = RECORD.get() or RequestRecord.of_no_request()
    record.note(model=_harmless(model), **fields, **({} if error is None else _stated(error)))


def note(**fields: Any) -> None:
    if (record := RECORD.get()) is not None:
        record.note(**fields)


def note_refusal(error: ApiError) -> None:
    """The line of a request that is refused in another way than by an answer of HTTP."""
    if (record := RECORD.get()) is not None:
        record.answered(error.status)
        record.note(**_stated(error))


@contextmanager
def part_of_connection(what: str) -> Iterator[None]:
    """One of several requests that come over one connection has a record of its own."""
    connection = RECORD.get()
    if connection is None:
        yield
        return
    record = connection.part(what)
    token = RECORD.set(record)
    try:
        yield
    finally:
        record.ended()
        RECORD.reset(token)


def log_refused_connection(request_id: str, client: str, status: int, body: bytes) -> None:
    """The line of bytes that never became a request."""
    record = RequestRecord(request_id, "CONNECTION", "", {}, client)
    record.answered(status)
    record.read_error(body)
    record.ended()


def client_left() -> None:
    if (record := RECORD.get()) is not None:
        record.left()


def without_quotes(message: str) -> str:
    """The message without what it quotes: that may be a part of a prompt."""
    named = _NAMED.sub(lambda name: name[0] if _NAME.fullmatch(name[1]) else "`…`", message)
    unquoted = _UNPAIRED.sub("…", _QUOTED.sub("…", named))
    return _harmless(unquoted, _LONGEST)


def _stated(error: ApiError) -> dict[str, Any]:
    return {"error_code": error.code, "reason": without_quotes(error.message)}


def _reason_of(body: bytes) -> dict[str, Any]:
    try:
        error = json.loads(body)["error"]
        param = str(error["param"] or "")
        named = {"error_code": error["code"], "error_param": param if _NAME.fullmatch(param) else None}
        return {**named, "reason": without_quotes(str(error["message"]))}
    except (ValueError, KeyError, TypeError):  # a body of another form, which has no reason
        return {}


def _harmless(text: str, most: int = _SHORT) -> str:
    """One line of printable characters."""
    line = text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text
    return line if len(line) <= most else f"{line[:most]}…"


def _extra(event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"event": event, "fields": fields}
