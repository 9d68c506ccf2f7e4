"""Batches in the form of Anthropic's Messages API: a second front on the same records, files and work.

Takes requests of messages. Returns batches with `msgbatch_` before the ids that `/v1/batches` shows, and
their results.
"""

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import from_json, to_json

from gpt_oss_server.apis.batches.batches import BatchesApi
from gpt_oss_server.apis.batches.lines import Checked
from gpt_oss_server.apis.files.files import FilesApi, refusals, room_for_files
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import InvalidRequest, NotFound
from gpt_oss_server.http.fields import Body, read_body, required
from gpt_oss_server.http.paging import limit_of
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.files import lines
from gpt_oss_server.stores.sql.queues.batches import Batch

_ENDPOINT = "/v1/messages"
_HOURS, _LASTS = 24, 30 * 86_400
_PER_LOOK, _MOST_LISTED = 100, 1_000
_EXAMPLE = '{"requests": [{"custom_id": "a", "params": {"max_tokens": 1024, "messages": […]}}]}'
_UNASKED = {"cancelled": "canceled", "expired": "expired"}  # what becomes of requests when a batch ends so


class MessageRequest(Body):
    custom_id: str = required("Names the result; unique in the batch.")
    params: dict[str, Any] = required("The body of a request to `/v1/messages`, without `stream`.")


class CreateMessageBatch(Body):
    requests: Annotated[list[MessageRequest], Field(min_length=1)] = required("The requests, up to 50,000.")


class MessageBatchesApi:
    """The message batches of one caller."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._api = BatchesApi(served, caller)
        self._caller = caller
        self._files = FilesApi(served, caller)
        self._batches = served.stores.batches.of(caller.owner)

    async def create(self, body: object) -> Batch:
        requests = read_body(body, CreateMessageBatch, _EXAMPLE).requests
        checked = Checked(_ENDPOINT)
        await checked.read(_lines(requests))
        for error in checked.errors:
            raise InvalidRequest.at(f"requests[{error['line'] - 1}]", f": {error['message']}")
        new = self._files.new("requests.jsonl", "batch", lasts=_LASTS)
        room = await room_for_files(self._caller, self._files.keep)
        with refusals():
            file = await self._files.keep.files.create(new, _lines(requests), room=room)
        batch = self._api.new(_ENDPOINT, file.id, _HOURS)
        batch["request_counts"]["total"] = checked.total
        await self._api.add(batch)
        return _shown(batch)

    async def retrieve(self, batch_id: str) -> Batch:
        return _shown(await self._find(batch_id))

    async def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        most, before = limit_of(query, most=_MOST_LISTED), query.get("before_id")
        kept: deque[Batch] = deque(maxlen=most + 1)
        async for batch in self._newest_first(query.get("after_id")):
            if _shown_id(batch) == before or (before is None and len(kept) > most):
                break
            kept.append(_shown(batch))
        else:
            if before is not None:
                raise _not_in_list("before_id", before)
        shown = list(kept)[-most:] if before else list(kept)[:most]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        return {"data": shown, "has_more": len(kept) > most, "first_id": first, "last_id": last}

    async def _newest_first(self, after: str | None) -> AsyncIterator[Batch]:
        at = None if after is None else _own_id(after)
        while (page := await self._batches.page(at, _PER_LOOK)) != []:
            if page is None:
                raise _not_in_list("after_id", str(after))
            for batch in page:
                if batch["endpoint"] == _ENDPOINT:
                    yield batch
            at = page[-1]["id"]

    async def cancel(self, batch_id: str) -> Batch:
        return _shown(await self._api.cancel((await self._find(batch_id))["id"]))

    async def results(self, batch_id: str) -> AsyncIterator[bytes]:
        """One line for each request; those that have failed come last."""
        batch = await self._ended(batch_id, "has no results yet. Ask again when it has")
        names = [batch[name] for name in ("output_file_id", "error_file_id") if batch.get(name)]
        for name in names:
            await self._files.find(name)

        async def content() -> AsyncIterator[bytes]:
            for name in names:
                async for line in lines(self._files.keep.files.read(name)):
                    yield to_json(_result(from_json(line), batch)) + b"\n"

        return content()

    async def delete(self, batch_id: str) -> dict[str, str]:
        batch = await self._ended(batch_id, "cannot be deleted. Cancel it first")
        for name in ("output_file_id", "error_file_id", "input_file_id"):
            await self._files.keep.files.delete(batch.get(name) or "")
        await self._batches.delete(batch["id"])
        return {"id": batch_id, "type": "message_batch_deleted"}

    async def _find(self, batch_id: str) -> Batch:
        batch = await self._batches.get(_own_id(batch_id))
        if batch is None or batch["endpoint"] != _ENDPOINT:
            problem = f"There is no message batch {batch_id!r:.80}: it was never created with this key."
            raise NotFound(problem, param="message_batch_id")
        return batch

    async def _ended(self, batch_id: str, problem: str) -> Batch:
        batch = await self._find(batch_id)
        if _shown(batch)["processing_status"] != "ended":
            raise InvalidRequest(f"The batch has not ended, and {problem}.", param="message_batch_id")
        return batch


async def _lines(requests: Sequence[MessageRequest]) -> AsyncIterator[bytes]:
    for each in requests:
        line = {"custom_id": each.custom_id, "method": "POST", "url": _ENDPOINT, "body": each.params}
        yield to_json(line) + b"\n"


def _own_id(batch_id: str) -> str:
    return batch_id.removeprefix("msg") if batch_id.startswith("msgbatch_") else ""


def _shown_id(batch: Batch) -> str:
    return f"msg{batch['id']}"


def _not_in_list(name: str, batch_id: str) -> InvalidRequest:
    return InvalidRequest.at(name, f": there is no message batch {batch_id!r:.80}.")


def _shown(batch: Batch) -> Batch:
    status, batch_id = batch["status"], _shown_id(batch)
    ended = batch.get(f"{status}_at") if status in ("completed", "failed", *_UNASKED) else None
    under_way = "canceling" if "cancelling_at" in batch else "in_progress"
    return {
        "id": batch_id,
        "type": "message_batch",
        "processing_status": under_way if ended is None else "ended",
        "request_counts": _counts(batch, is_ended=ended is not None),
        "created_at": _time(batch["created_at"]),
        "expires_at": _time(batch["expires_at"]),
        "ended_at": _time(ended),
        "cancel_initiated_at": _time(batch.get("cancelling_at")),
        "archived_at": None,
        "results_url": None if ended is None else f"{_ENDPOINT}/batches/{batch_id}/results",
    }


def _counts(batch: Batch, *, is_ended: bool) -> dict[str, int]:
    counts = batch["request_counts"]
    left = counts["total"] - counts["completed"] - counts["failed"]
    unasked = batch.get("_unanswered", 0)
    return {
        "processing": 0 if is_ended else left,
        "succeeded": counts["completed"],
        "errored": counts["failed"] - unasked + (left if is_ended else 0),
        **{name: unasked if batch["status"] == status else 0 for status, name in _UNASKED.items()},
    }


def _time(seconds: int | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _result(answer: Mapping[str, Any], batch: Batch) -> dict[str, Any]:
    response = answer["response"]
    if response is None:
        result: dict[str, Any] = {"type": _UNASKED[batch["status"]]}
    elif response["status_code"] < 300:
        result = {"type": "succeeded", "message": response["body"]}
    else:
        result = {"type": "errored", "error": response["body"]}
    return {"custom_id": answer["custom_id"], "result": result}
