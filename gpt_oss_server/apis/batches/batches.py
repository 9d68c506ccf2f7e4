"""Batches as the API shows them: created, listed, retrieved and cancelled. `work` answers their requests."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from gpt_oss_server.apis.files.files import ExpiresAfter, FilesApi
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import InvalidRequest, NotFound
from gpt_oss_server.http.fields import Body, optional, read_body, required
from gpt_oss_server.http.paging import limit_of, shown_page
from gpt_oss_server.http.shared_fields import check_metadata
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.sql.queues.batches import Batch

Endpoint = Literal[
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/decisions",
    "/v1/moderations",
]
_EXAMPLE = '{"input_file_id": "file_…", "endpoint": "/v1/responses", "completion_window": "24h"}'
_HOURS = {"h": 1, "d": 24}
_MOST_HOURS = 30 * 24


class CreateBatch(Body):
    input_file_id: str = required("A file with the purpose `batch`: one request in JSON on each line.")
    endpoint: Endpoint = required("Where the requests go.")
    completion_window: str = required("The time that the batch has: `24h`, or other hours or days (`7d`).")
    metadata: dict[str, Any] | None = optional("Up to 16 pairs of texts that come back with the batch.")
    output_expires_after: ExpiresAfter | None = optional(
        "When the files with the answers are deleted; 30 days if left out."
    )


class BatchesApi:
    """The batches of one caller."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._served = served
        self._caller = caller
        self._batches = served.stores.batches.of(caller.owner)

    async def create(self, body: object) -> Batch:
        wanted = read_body(body, CreateBatch, _EXAMPLE)
        check_metadata(wanted.metadata)
        window = re.fullmatch(r"([1-9]\d{0,2})([hd])", wanted.completion_window)
        hours = int(window[1]) * _HOURS[window[2]] if window else 0
        if not 1 <= hours <= _MOST_HOURS:
            raise InvalidRequest.at(
                "completion_window", "must be hours or days, such as '24h' or '7d', up to 30 days."
            )
        file = await FilesApi(self._served, self._caller).find(wanted.input_file_id)
        if file.purpose != "batch":
            problem = f"The file {file.id} has the purpose {file.purpose!r}. Upload it with `batch`."
            raise InvalidRequest(problem, param="input_file_id")
        lasts = wanted.output_expires_after.seconds if wanted.output_expires_after else None
        batch = self.new(wanted.endpoint, file.id, hours)
        batch |= {"completion_window": wanted.completion_window, "metadata": wanted.metadata}
        await self.add(batch, lasts)
        return batch

    def new(self, endpoint: str, file_id: str, hours: int) -> Batch:
        now = int(self._served.clock())
        return {
            "id": self._served.ids("batch"),
            "object": "batch",
            "endpoint": endpoint,
            "errors": None,
            "input_file_id": file_id,
            "completion_window": f"{hours}h",
            "status": "validating",
            "output_file_id": None,
            "error_file_id": None,
            "created_at": now,
            "expires_at": now + hours * 3_600,
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": None,
        }

    async def add(self, batch: Batch, lasts: int | None = None) -> None:
        await self._batches.add(batch, {**self._caller.stored, "output_lasts": lasts})

    async def find(self, batch_id: str) -> Batch:
        return _found(await self._batches.get(batch_id), batch_id)

    async def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        most, after = limit_of(query), query.get("after")
        return shown_page(await self._batches.page(after, most + 1), most, after, shown)

    async def cancel(self, batch_id: str) -> Batch:
        return _found(await self._batches.cancel(batch_id, int(self._served.clock())), batch_id)


def _found(batch: Batch | None, batch_id: str) -> Batch:
    if batch is None:
        problem = f"There is no batch {batch_id!r:.80}: it was never created with this key."
        raise NotFound(problem, param="batch_id")
    return shown(batch)


def shown(batch: Batch) -> Batch:
    """The object without the fields that only the work needs."""
    return {name: value for name, value in batch.items() if not name.startswith("_")}
