"""Uploads: files that arrive in parts. Each part is stored as it comes; the last request joins them."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request

from gpt_oss_server.apis.files.files import CreateFile, FilesApi, refusals, room_for_files, shown
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import BodyTooLarge, InvalidRequest, NotFound
from gpt_oss_server.http.fields import Body, Integer, optional, read_body, required
from gpt_oss_server.http.uploads import bounded, file_part, form_of
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.files import StoredFile, Upload

_LASTS = 3_600  # seconds from the creation of an upload to its end
_MOST_IN_PART = 64 * 1024**2  # bytes, as with OpenAI
_EXAMPLE = '{"filename": "a.pdf", "bytes": 3000, "mime_type": "application/pdf", "purpose": "user_data"}'


class CreateUpload(CreateFile):
    filename: str = required("The name of the file.")
    bytes: Annotated[Integer, Field(ge=0)] = required("How many bytes the file has.")
    mime_type: str = required("The type of the file. Its content alone decides how it is read.")


class CompleteUpload(Body):
    part_ids: list[str] = required("The ids of all parts, in the order in which they are joined.")
    md5: str | None = optional("The MD5 of the whole file in hexadecimal digits; another file is refused.")


class UploadsApi:
    """The uploads of one caller."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._api = FilesApi(served, caller)
        self._files = self._api.keep.files
        self._caller = caller
        self._most = served.settings.file_max_bytes

    async def create(self, body: object) -> dict[str, Any]:
        wanted = read_body(body, CreateUpload, _EXAMPLE)
        if wanted.bytes > self._most:
            problem = f"A file may have {self._most:,} bytes at most, not {wanted.bytes:,}."
            advice = "The server's operator sets this (--file-max-bytes)."
            raise BodyTooLarge(f"{problem} {advice}", param="bytes")
        new = self._api.new(wanted.filename, wanted.purpose, prefix="upload")
        ends = new.created_at + _LASTS
        fields = (new.id, new.filename, new.purpose, new.created_at, ends, wanted.bytes, wanted.lasts)
        await self._files.begin_upload(upload := Upload(*fields))
        return _shown(upload)

    async def add_part(self, upload_id: str, request: Request) -> dict[str, Any]:
        upload = await self._pending(upload_id)
        room = await room_for_files(self._caller, self._api.keep)
        async with aclosing(form_of(request, _MOST_IN_PART)) as form:
            part = await file_part(form, "data", {})
            new = self._api.new("", upload.purpose, lasts=_LASTS, prefix="part")
            with refusals():
                content = bounded(part.content, _MOST_IN_PART)
                await self._files.create(new, content, room=room, upload=upload.id)
        return {"id": new.id, "object": "upload.part", "created_at": new.created_at, "upload_id": upload.id}

    async def complete(self, upload_id: str, body: object) -> dict[str, Any]:
        wanted = read_body(body, CompleteUpload, '{"part_ids": ["part_…"]}')
        upload = await self._pending(upload_id)
        parts = _ordered(await self._files.parts(upload.id), wanted.part_ids)
        if (size := sum(part.bytes for part in parts)) != upload.bytes:
            problem = f"The parts have {size:,} bytes, but the upload was created for {upload.bytes:,}."
            raise InvalidRequest(f"{problem} Add the missing parts, or cancel the upload.", param="part_ids")
        digest = hashlib.md5(usedforsecurity=False)

        async def joined() -> AsyncIterator[bytes]:
            for part in parts:
                async for piece in self._files.read(part.id):
                    digest.update(piece)
                    yield piece
            if wanted.md5 is not None and digest.hexdigest() != wanted.md5.lower():
                problem = f"The MD5 of the parts is {digest.hexdigest()}, not {wanted.md5:.40}."
                raise InvalidRequest(f"{problem} Send them again.", param="md5")

        new = self._api.new(upload.filename, upload.purpose, lasts=upload.file_lasts)
        with refusals():
            stored = await self._files.create(new, joined())
        if (ended := await self._files.end_upload(upload.id, "completed")) is None:
            await self._files.delete(stored.id)  # another request was faster
            raise _not_pending(upload.id, "completed")
        return _shown(ended, stored)

    async def cancel(self, upload_id: str) -> dict[str, Any]:
        upload = await self._pending(upload_id)
        if (ended := await self._files.end_upload(upload.id, "cancelled")) is None:
            raise _not_pending(upload.id, "completed")
        return _shown(ended)

    async def _pending(self, upload_id: str) -> Upload:
        if (upload := await self._files.get_upload(upload_id)) is None:
            problem = f"There is no upload {upload_id!r}. An upload ends an hour after it was created."
            raise NotFound(problem, param="upload_id")
        if upload.status != "pending":
            raise _not_pending(upload_id, upload.status)
        return upload


def _shown(upload: Upload, file: StoredFile | None = None) -> dict[str, Any]:
    fields = {key: value for key, value in asdict(upload).items() if key != "file_lasts"}
    return {"object": "upload", **fields, "file": None if file is None else shown(file)}


def _ordered(stored: Sequence[StoredFile], part_ids: Sequence[str]) -> list[StoredFile]:
    by_id = {part.id: part for part in stored}
    for at, part_id in enumerate(part_ids):
        if part_id not in by_id:
            raise InvalidRequest(f"The upload has no part {part_id!r:.80}.", param=f"part_ids[{at}]")
    if len(set(part_ids)) < len(part_ids):
        raise InvalidRequest.at("part_ids", "names a part twice. Name each once.")
    return [by_id[part_id] for part_id in part_ids]


def _not_pending(upload_id: str, status: str) -> InvalidRequest:
    return InvalidRequest(f"The upload {upload_id} is {status}. Create a new one.", param="upload_id")
