"""Responses that were made before: retrieved, deleted, cancelled, and their events read again.

Takes the work of a request and ids. Returns stored responses and event logs, whichever process runs or ran
them, or raises an `ApiError`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpt_oss_server.apis.responses.continuing import Continuing
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.errors import EventsForgotten, InvalidRequest, ResponseNotFound
from gpt_oss_server.http.paging import list_of, not_in_list, page, wanted_of
from gpt_oss_server.runs.background.runs import BackgroundRuns
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.events import past_the_end
from gpt_oss_server.stores.kinds.keep import Keep
from gpt_oss_server.stores.pages import ItemPage, UnknownItem, Wanted
from gpt_oss_server.stores.sql.events import EventLog
from gpt_oss_server.traces.records import Traces


class StoredResponses:
    """Those that one caller may see."""

    def __init__(
        self, keep: Keep, background: BackgroundRuns[Run], continuing: Continuing, traces: Traces
    ) -> None:
        self._keep = keep
        self._background = background
        self._continuing = continuing
        self._traces = traces

    async def retrieve(self, response_id: str) -> StoredResponse:
        running = self._background.running(response_id, self._keep.owner)
        if running is not None:
            return running.snapshot
        stored = await self._keep.responses.get(response_id)
        if stored is None:
            stored = await self._continuing.running_elsewhere(response_id, self._keep.owner)
        if stored is None:  # it may have ended between the two looks
            stored = await self._keep.responses.get(response_id)
        if stored is None:
            raise ResponseNotFound(
                f"No response with id {response_id!r} is stored. It may have expired, been deleted, or been "
                "created with store=false.",
                param="response_id",
            )
        return stored

    async def delete(self, response_id: str) -> dict[str, Any]:
        await self.retrieve(response_id)
        await self._stop(response_id)
        await self._keep.events.delete(response_id)
        self._traces.forget(response_id)
        await self._keep.responses.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def cancel(self, response_id: str) -> dict[str, Any]:
        """The cancelled response. Cancelling it again changes nothing."""
        if not (was_running := await self.is_running(response_id)):
            await self.retrieve(response_id)  # raises if there is no such response
        await self._stop(response_id)
        response = (await self.retrieve(response_id)).response
        if not response["background"] and not was_running:
            raise InvalidRequest(
                "Only a background response can be cancelled. To stop any other, close the connection.",
                param="response_id",
            )
        if response["status"] != "cancelled":
            raise InvalidRequest(
                f"The response {response_id!r} cannot be cancelled: it has ended as {response['status']!r}.",
                param="response_id",
            )
        return response

    async def event_log(self, response_id: str, after: int) -> EventLog:
        """The log of a background response; it still holds all events after number `after`."""
        log = await self._keep.events.open(response_id)
        if log is None:
            await self.retrieve(response_id)  # raises if there is no such response
            raise EventsForgotten(
                f"The response {response_id!r} has no events to stream: it is not a background response, or "
                "ended too long ago. Leave `stream` out to get the whole response.",
                param="stream",
            )
        await log.check(after)
        ended = after >= 0 and await self._keep.responses.get(response_id) is not None
        if ended and not await log.has(after):
            raise past_the_end(after)
        return log

    async def input_items(self, response_id: str, query: Mapping[str, str]) -> dict[str, Any]:
        """A page of a response's input."""
        store = self._keep.responses
        shown = await listed(lambda wanted: store.input_page(response_id, wanted), query)
        return page((await self.retrieve(response_id)).input_items, query) if shown is None else shown

    async def is_running(self, response_id: str) -> bool:
        if self._background.running(response_id, self._keep.owner) is not None:
            return True
        return await self._continuing.is_running(response_id, self._keep.owner)

    async def _stop(self, response_id: str) -> None:
        """Returns when the run has ended, whichever process it is in."""
        await self._background.stop(response_id, self._keep.owner)
        await self._continuing.ended(response_id, self._keep.owner)


async def listed(
    read: Callable[[Wanted], Awaitable[ItemPage | None]], query: Mapping[str, str]
) -> dict[str, Any] | None:
    """The API's list of a page of stored items; None where `read` returns no page."""
    try:
        shown = await read(wanted_of(query))
    except UnknownItem as error:
        raise not_in_list(str(error)) from error
    return None if shown is None else list_of(shown.items, has_more=shown.has_more)
