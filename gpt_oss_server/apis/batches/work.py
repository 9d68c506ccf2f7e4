"""Answers the batches that nobody works on: their lines side by side, behind all other requests.

Takes the application, to which each line is a request. An answer is stored at once. A process that ends
gives its batches back; those of one that was killed are claimed when their leases end, and go on with the
lines that have no answer yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp

from gpt_oss_server.apis.batches.lines import Answer, Checked, Usage, asked, unanswered
from gpt_oss_server.apis.files.files import FilesApi
from gpt_oss_server.caller.caller import LAST, Caller
from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.events import LeaseLost
from gpt_oss_server.stores.files import FileLost, LineTooLong, NoRoom, StoredFile, lines
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.queues.batches import HeldBatch

_LOOK_SECONDS = 1.0
_MOST_BATCHES = 4  # that one process works on
_NEWS_SECONDS = 2.0  # between looks whether the batch was cancelled or its time is over
_LONGEST_WAIT = 60.0  # seconds before a refused line is asked again
_OUTPUT_LASTS = 30 * 86_400  # seconds
_ENDS = {
    "expired": ("batch_expired", "The batch's time was over before this request could be answered."),
    "cancelled": ("batch_cancelled", "The batch was cancelled before this request could be answered."),
}
_log = logging.getLogger(__name__)


class BatchWork:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._batches = served.stores.batches
        self._lease = served.settings.background_lease
        self._places = asyncio.Semaphore(served.settings.batch_concurrent)
        self._working: set[asyncio.Task[None]] = set()
        self._repeated = Repeated(self._look, _LOOK_SECONDS, "Batches cannot be answered")
        self._app: ASGIApp

    def start(self, app: ASGIApp) -> None:
        self._app = app
        self._repeated.start()

    async def close(self) -> None:
        """Lets another process, or the next one, go on."""
        await self._repeated.close()
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)

    async def _look(self) -> None:
        while len(self._working) < _MOST_BATCHES and (held := await self._batches.claim(self._lease)):
            task = asyncio.create_task(self._work(held))
            self._working.add(task)
            task.add_done_callback(self._working.discard)

    async def _work(self, held: HeldBatch) -> None:
        work = OneBatch(self._served, held, self._app, self._places)
        try:
            await self._to_its_end(work, held)
        except asyncio.CancelledError:
            await self._batches.give_back(held)
            raise

    async def _to_its_end(self, work: OneBatch, held: HeldBatch) -> None:
        try:
            await work.to_its_end(self._lease)
        except* LeaseLost:
            _log.warning("Another server goes on with the batch %s.", held.key)
        except* StoreUnavailable as problems:  # who reaches the store first goes on when the lease is over
            _log.warning("The batch %s is interrupted: %s", held.key, problems.exceptions[0])
        except* Exception as problems:
            _log.error("The batch %s broke.", held.key, exc_info=problems)
            await work.fail(_error("server_error", "The server failed; its log says why.", param=None))


class OneBatch:
    """A batch that this process holds."""

    def __init__(self, served: Served, held: HeldBatch, app: ASGIApp, places: asyncio.Semaphore) -> None:
        self._served = served
        self._held = held
        self._app = app
        self._places = places
        self._output_lasts = held.caller.pop("output_lasts") or _OUTPUT_LASTS
        self._caller = replace(Caller.again(held.owner, held.caller), priority=LAST)
        self._files = served.stores.files.of(held.owner)
        self._batches = served.stores.batches

    async def to_its_end(self, lease: float) -> None:
        if self._held.batch["status"] == "validating" and not await self._is_valid():
            return
        if (status := self._held.batch.get("_ends")) is None:
            status = await self._answer_all(lease)
        if status is not None:
            await self._finish(status)

    async def _answer_all(self, lease: float) -> str | None:
        """How the batch ends, when every line has an answer; None: it has failed."""
        status, working = "completed", asyncio.create_task(self._answer_lines())
        try:
            while not working.done() and status == "completed":
                await asyncio.wait({working}, timeout=min(lease / 3, _NEWS_SECONDS))
                if await self._batches.renew(self._held, lease) == "cancelling":
                    status = "cancelled"
                elif self._now() >= self._held.batch["expires_at"] and not working.done():
                    status = "expired"
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        if status != "completed":
            async for number, line in self._rest():
                await self._store(number, unanswered(line, self._new_id(), *_ENDS[status]))
        elif not working.result():
            await self.fail(_error("file_lost", "The input file was deleted before the batch ended."))
            return None
        return status

    async def _is_valid(self) -> bool:
        checked = Checked(self._held.batch["endpoint"])
        try:
            await checked.read(self._lines())
        except FileLost:
            checked.errors.append(_error("file_lost", "The input file was deleted."))
        except LineTooLong:
            checked.errors.append(_error("line_too_long", "A line is longer than 16 MiB.", checked.total + 1))
        counts = {**self._held.batch["request_counts"], "total": checked.total}
        if checked.errors:
            await self._batches.change(self._held, request_counts=counts)
            await self.fail(*checked.errors)
            return False
        fields = {"status": "in_progress", "in_progress_at": self._now(), "request_counts": counts}
        await self._batches.change(self._held, **fields)
        return True

    def _lines(self) -> AsyncIterator[bytes]:
        return lines(self._files.read(self._held.batch["input_file_id"]))

    async def _rest(self) -> AsyncIterator[tuple[int, bytes]]:
        """The lines without an answer, and their numbers."""
        number = 0
        async for line in self._lines():
            number += 1
            if number not in self._held.answered:
                yield number, line

    async def _answer_lines(self) -> bool:
        """Whether the file could be read to its end."""
        async with asyncio.TaskGroup() as group:
            try:
                async for number, line in self._rest():
                    await self._places.acquire()
                    group.create_task(self._answer(number, line))
            except FileLost:
                return False
        return True

    async def _answer(self, number: int, line: bytes) -> None:
        try:
            endpoint = self._held.batch["endpoint"]
            while True:
                answer = await asked(self._app, self._caller, endpoint, line, self._new_id())
                if answer.again_after is None:
                    break
                await asyncio.sleep(min(answer.again_after, _LONGEST_WAIT))
            await self._store(number, answer)
        finally:
            self._places.release()

    async def _store(self, number: int, answer: Answer) -> None:
        await self._batches.answer(self._held, number, answer.succeeded, answer.line)

    async def _finish(self, status: str) -> None:
        """Writes the files, whose ids are stored first, so that none is left over if this is interrupted."""
        held, usage = self._held, Usage()
        names = ("output_file_id", "error_file_id")
        for name in names:
            if earlier := held.batch.get(f"_{name}"):
                await self._files.delete(earlier)
        ids = {name: self._served.ids("file") for name in names}
        begun = {"status": "finalizing", "finalizing_at": self._now(), "_ends": status}
        await self._batches.change(held, **begun, **{f"_{name}": ids[name] for name in names})
        files: dict[str, Any] = {}
        for name, succeeded in zip(names, (True, False), strict=True):
            try:
                files[name] = await self._write(ids[name], succeeded, usage)
            except NoRoom:
                problem = "The files of this API key, or of all, have as many bytes as they may."
                await self.fail(_error("no_room", f"{problem} The answers could not be written."))
                return
        await self._end(status, **files, usage=usage.sum, _unanswered=usage.unanswered)

    async def _write(self, file_id: str, succeeded: bool, usage: Usage) -> str | None:
        held, after, is_empty = self._held, 0, True

        async def content() -> AsyncIterator[bytes]:
            nonlocal after, is_empty
            while answers := await self._batches.answers(held, after):
                for number, is_success, line in answers:
                    after = number
                    if is_success == succeeded:
                        is_empty = False
                        usage.add(line)
                        yield line + b"\n"
                await self._batches.renew(held, self._served.settings.background_lease)

        kind = "output" if succeeded else "error"
        new = FilesApi(self._served, self._caller).new(
            f"{held.batch['id']}_{kind}.jsonl", f"batch_{kind}", lasts=self._output_lasts
        )
        stored: StoredFile = await self._files.create(replace(new, id=file_id), content())
        if is_empty:
            await self._files.delete(stored.id)
            return None
        return stored.id

    async def fail(self, *errors: dict[str, Any]) -> None:
        await self._end("failed", errors={"object": "list", "data": list(errors)})

    async def _end(self, status: str, **fields: Any) -> None:
        """Webhooks are told before the end is stored: what is interrupted in between is done again."""
        webhooks = self._served.stores.webhooks.of(self._held.owner)
        await webhooks.add(f"batch.{status}", self._held.batch["id"], self._now())
        await self._batches.change(self._held, status=status, **{f"{status}_at": self._now()}, **fields)

    def _new_id(self) -> str:
        return self._served.ids("batch_req")

    def _now(self) -> int:
        return int(self._served.clock())


def _error(
    code: str, message: str, line: int | None = None, param: str | None = "input_file_id"
) -> dict[str, Any]:
    return {"code": code, "message": message, "line": line, "param": param}
