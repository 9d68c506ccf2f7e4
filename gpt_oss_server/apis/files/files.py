"""Files as the API shows them: made of a form, listed, read and deleted.

Takes forms and queries. Returns the API's objects, or raises an `ApiError`. A file is stored while its form
arrives, so that it may be larger than memory.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import NoSuchFile, RateLimitExceeded
from gpt_oss_server.http.fields import Body, Integer, optional, read_body, required
from gpt_oss_server.http.paging import limit_of, newest_first, shown_page
from gpt_oss_server.http.unknown_fields import treat_unknown_fields
from gpt_oss_server.http.uploads import add_field, bounded, file_part, form_of
from gpt_oss_server.runs.served import Served, check_stored
from gpt_oss_server.stores.files import NewFile, NoRoom, StoredFile
from gpt_oss_server.stores.kinds.keep import Keep

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
_BATCH_SECONDS = 30 * 86_400  # that a file for a batch lasts, if its request states nothing else
_MOST_LISTED = 10_000
_EXAMPLE = '{"purpose": "user_data"}'


class ExpiresAfter(Body):
    anchor: Literal["created_at"] = required("From when the seconds count.")
    seconds: Annotated[Integer, Field(ge=3_600, le=2_592_000)] = required("Then the file is deleted.")


class CreateFile(Body):
    purpose: Purpose = required(
        "What the file is for. A file can be used for anything, but batches need `batch`."
    )
    expires_after: ExpiresAfter | None = optional(
        "When the file is deleted; 30 days for batches, else never."
    )

    @property
    def lasts(self) -> int | None:
        if self.expires_after is None:
            return _BATCH_SECONDS if self.purpose == "batch" else None
        return self.expires_after.seconds


class FilesApi:
    """The files of one caller."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._served = served
        self._caller = caller
        self.keep = served.stores.of(caller.owner)

    async def create(self, request: Request) -> dict[str, Any]:
        room = await room_for_files(self._caller, self.keep)
        most, unknown = self._served.settings.file_max_bytes, self._served.settings.unknown_fields
        async with aclosing(form_of(request, most)) as form:
            fields: dict[str, Any] = {}
            part = await file_part(form, "file", fields)

            async def content() -> AsyncIterator[bytes]:
                async for piece in bounded(part.content, most):
                    yield piece
                async for rest in form:
                    await add_field(fields, rest)

            def described(new: NewFile) -> NewFile:
                treat_unknown_fields(fields, CreateFile, unknown)
                wanted = read_body(fields, CreateFile, _EXAMPLE)
                return replace(new, purpose=wanted.purpose, lasts=wanted.lasts)

            new = self.new(part.filename, "")
            with refusals():
                return shown(await self.keep.files.create(new, content(), room=room, described=described))

    def new(self, filename: str, purpose: str, *, lasts: int | None = None, prefix: str = "file") -> NewFile:
        return NewFile(self._served.ids(prefix), filename, purpose, int(self._served.clock()), lasts)

    async def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        most = limit_of(query, default=_MOST_LISTED, most=_MOST_LISTED)
        after, purpose = query.get("after"), query.get("purpose")
        order = newest_first(query)
        found = await self.keep.files.page(after, most + 1, newest_first=order, purpose=purpose)
        return shown_page(found, most, after, shown)

    async def find(self, file_id: str) -> StoredFile:
        if (stored := await self.keep.files.get(file_id)) is None:
            raise missing(file_id)
        return stored

    async def retrieve(self, file_id: str) -> dict[str, Any]:
        return shown(await self.find(file_id))

    async def delete(self, file_id: str) -> dict[str, Any]:
        if not await self.keep.files.delete(file_id):
            raise missing(file_id)
        return {"id": file_id, "object": "file", "deleted": True}


def shown(file: StoredFile) -> dict[str, Any]:
    return {"object": "file", **asdict(file), "status": "processed", "status_details": None}


def missing(file_id: str) -> NoSuchFile:
    problem = (
        f"There is no file {file_id!r}: it was never uploaded with this key, has expired, or was deleted."
    )
    return NoSuchFile(problem, param="file_id")


async def room_for_files(caller: Caller, keep: Keep) -> int | None:
    """The bytes that the files of the caller's key may have; None: no limit. Raises a 429."""
    await check_stored(caller, keep)
    most = caller.access.limits.stored
    return None if most is None else most - await keep.used_besides_files()


@contextmanager
def refusals() -> Iterator[None]:
    """Turns what the store refuses into errors."""
    try:
        yield
    except NoRoom as refusal:
        whose = "The files of this API key have" if refusal.of_owner else "All files of this server have"
        problem = f"{whose} as many bytes as they may ({refusal.most:,}). Delete some, then send it again."
        raise RateLimitExceeded(problem, param="file") from refusal
