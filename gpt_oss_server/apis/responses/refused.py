"""A streamed request whose prompt does not fit: the stream reports it, as the official API's does.

Takes the response object and the error. Returns the events of a failed response. Agents read a failed
response's code and shorten their conversation; they take a status of 400 for an invalid request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from gpt_oss_server.apis.responses.resource import shown_usage
from gpt_oss_server.apis.responses.stream import Event, ResponseStream
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.items.builder import ItemBuilder
from gpt_oss_server.runs.usage import Usage


class RefusedRun:
    """Has the interface of `Run` that readers of its events use."""

    def __init__(self, response: dict[str, Any], error: ApiError, clock: Callable[[], float]) -> None:
        self.error = error
        self.ignored: list[str] = []
        self._stream = ResponseStream(response, _no_item, clock)

    @property
    def response(self) -> dict[str, Any]:
        return self._stream.response

    def still_in_progress(self) -> list[Event]:
        return self._stream.still_in_progress()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        yield self._stream.start()
        yield self._stream.finish("failed", usage=shown_usage(Usage()), error=self.error)


def _no_item(header: Header) -> ItemBuilder:
    raise RuntimeError("A refused response has no output.")
