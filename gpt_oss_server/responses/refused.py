"""A streamed request whose prompt does not fit: a stream that says so, as the official API's does.

In: the request and the error. Out: the events of a response that has failed. Agents read the code of a failed
response and make their conversation shorter; a status of 400 they take for a request that is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.item_builder import ItemBuilder
from gpt_oss_server.responses.resource import usage_of
from gpt_oss_server.responses.stream import Event, ResponseStream


class RefusedRun:
    """What `Run` is to those who read its events."""

    def __init__(self, response: dict[str, Any], error: ApiError, clock: Callable[[], float]) -> None:
        self.error = error
        self._stream = ResponseStream(response, _no_item, clock)

    @property
    def response(self) -> dict[str, Any]:
        return self._stream.response

    def still_in_progress(self) -> list[Event]:
        return self._stream.still_in_progress()

    async def events(self) -> AsyncGenerator[list[Event], None]:
        yield self._stream.start()
        yield self._stream.finish("failed", usage=usage_of(), error=self.error)


def _no_item(header: Header) -> ItemBuilder:
    raise RuntimeError("A response that was refused has no output.")
