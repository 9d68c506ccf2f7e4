"""Containers: the python sessions of conversations, found by their ids, and their files.

Takes `cntr_…`, the id that a conversation's calls report as their container, and names and bytes of files.
Returns `Container`s, their JSON and that of their files, and the files' bytes. A container lives as long as
the python session of its conversation; a client may upload a file before the first call.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from gpt_oss_server.errors import (
    ContainerFileNotFound,
    ContainerNotFound,
    EngineUnavailable,
    InvalidRequest,
    ToolNotAvailable,
    TooManyContainers,
)
from gpt_oss_server.hosted.code_interpreter import CodeInterpreter
from gpt_oss_server.hosted.container_names import IDLE_MINUTES, PREFIX, container_id, conversation_of
from gpt_oss_server.responses.service import ResponsesService
from gpt_oss_server.tooling.toolset import Toolset, ToolsetMaker
from tools.sessions import TooManySessions
from tools.tool import ToolUnavailable

if TYPE_CHECKING:
    from tools.python import FileInfo, PythonSession

_FOLDER = "/mnt/data/"
_PYTHON = CodeInterpreter.namespace


@dataclass(slots=True)
class Metadata:
    """What this module records of a session beyond the session itself."""

    since: float
    used: float = 0.0  # when a client last used it: its files, or only its description
    name: str | None = None
    uploaded: set[str] = field(default_factory=set)


class Containers:
    """Finds containers by their ids."""

    def __init__(self, service: ResponsesService, tools: ToolsetMaker, clock: Callable[[], float]) -> None:
        self._service = service
        self._tools = tools
        self._clock = clock
        self._metadata: WeakKeyDictionary[PythonSession, Metadata] = WeakKeyDictionary()

    async def find(self, container: str) -> Container:
        """Finds a container for use: as with OpenAI's, every use resets the idle time."""
        toolset = await self._tools.ready()
        found = await self._open(toolset, container)
        if found is None:
            raise ContainerNotFound(await self._why_missing(container), param="container_id")
        toolset.toolbox.touch(conversation_of(container), _PYTHON)
        found.metadata.used = self._clock()
        return found

    async def _why_missing(self, container: str) -> str:
        outlives = self._service.served.stores.claims is not None  # the store, but not the files
        if outlives and await self._stored_since(conversation_of(container)) is not None:
            return (
                f"The container {container!r} is not on this server. Its conversation is stored, but its "
                "files stay with the server that ran its python, for as long as that runs: ask that "
                "server, or let the conversation use python again."
            )
        return (
            f"There is no container {container!r}. Its conversation did not use python, has ended, or was "
            "idle for so long that its files are gone."
        )

    async def all(self) -> list[Container]:
        """All open containers, the oldest first."""
        toolset = await self._tools.ready()
        names = [container_id(each) for each in toolset.toolbox.conversations(_PYTHON)]
        found = [await self._open(toolset, name) for name in names]
        return sorted((each for each in found if each is not None), key=lambda each: each.metadata.since)

    async def find_or_open(self, container: str) -> Container:
        """Opens the session of a stored conversation that has not used python yet."""
        toolset = await self._tools.ready()
        if _PYTHON not in toolset.local:
            raise ToolNotAvailable(toolset.refusals.get(_PYTHON, CodeInterpreter.off))
        if await self._open(toolset, container) is None and await self._stored_since(
            conversation_of(container)
        ):
            _open_session(toolset, container)
        return await self.find(container)

    async def create(self, container: str, name: str | None) -> Container:
        """Opens a container without a conversation, for requests that name it."""
        toolset = await self._tools.ready()
        if _PYTHON not in toolset.local:
            raise ToolNotAvailable(toolset.refusals.get(_PYTHON, CodeInterpreter.off))
        _open_session(toolset, container)
        created = await self.find(container)
        created.metadata.name = name
        return created

    async def delete(self, container: str) -> None:
        """Ends the conversation's python, whose next call starts afresh; its other tools continue."""
        await self.find(container)
        (await self._tools.ready()).toolbox.forget(conversation_of(container), _PYTHON)

    async def _open(self, toolset: Toolset, container: str) -> Container | None:
        if _PYTHON not in toolset.local:
            return None
        from tools.python import PythonSession

        session = toolset.toolbox.session(conversation_of(container), _PYTHON)
        if not container.startswith(PREFIX) or not isinstance(session, PythonSession):
            return None  # also if another server runs python and keeps the files
        metadata = self._metadata.get(session)
        if metadata is None:
            since = await self._stored_since(conversation_of(container))
            metadata = Metadata(self._clock() if since is None else since)
            self._metadata[session] = metadata
        return Container(container, session, metadata, self._clock)

    async def _stored_since(self, conversation: str) -> float | None:
        """When the stored response or conversation of this id was created; None if none is stored."""
        store = self._service.served.store
        if (response := await store.get(conversation)) is not None:
            return float(response.response["created_at"])
        named = await store.get_conversation(conversation)
        return None if named is None else named.created_at


@dataclass(frozen=True, slots=True)
class Container:
    """One conversation's python session, and its files."""

    id: str
    session: PythonSession
    metadata: Metadata
    clock: Callable[[], float]

    def as_json(self) -> dict[str, Any]:
        last_call = self.session.last_used
        ran = self.clock() - (time.monotonic() - last_call) if last_call else 0.0
        return {
            "id": self.id,
            "object": "container",
            "name": self.metadata.name or self.id,
            "status": "running",
            "created_at": int(self.metadata.since),
            "last_active_at": int(max(ran, self.metadata.used, self.metadata.since)),
            "expires_after": {"anchor": "last_active_at", "minutes": IDLE_MINUTES},
        }

    def file_as_json(self, info: FileInfo) -> dict[str, Any]:
        return {
            "id": self._file_id(info.path),
            "object": "container.file",
            "container_id": self.id,
            "created_at": int(info.modified),
            "bytes": info.size,
            "path": _FOLDER + info.path,
            "source": "user" if info.path in self.metadata.uploaded else "assistant",
        }

    async def files(self) -> list[FileInfo]:
        return await self.session.files()

    async def file(self, file_id: str) -> FileInfo:
        for info in await self.files():
            if self._file_id(info.path) == file_id:
                return info
        raise ContainerFileNotFound(
            f"There is no file {file_id!r} in the container {self.id!r}. List its files to see their ids.",
            param="file_id",
        )

    async def read(self, info: FileInfo) -> bytes:
        from tools.python import FileRefused

        try:
            return await self.session.read(info.path)
        except FileRefused as refusal:
            raise InvalidRequest(str(refusal), param="file_id") from refusal

    async def remove(self, info: FileInfo) -> None:
        from tools.python import FileRefused

        try:
            await self.session.remove(info.path)
        except FileRefused as refusal:
            raise InvalidRequest(str(refusal), param="file_id") from refusal
        self.metadata.uploaded.discard(info.path)

    async def put(self, name: str, content: bytes) -> FileInfo:
        from tools.python import FileRefused, NoMemoryLeft

        try:
            await self.session.write(name, content)
        except NoMemoryLeft as refusal:
            raise TooManyContainers(f"The file cannot be stored: {refusal}.", param="file") from refusal
        except FileRefused as refusal:
            raise InvalidRequest(str(refusal), param="file") from refusal
        path = _plain(name)
        self.metadata.uploaded.add(path)
        return await self.file(self._file_id(path))

    def _file_id(self, path: str) -> str:
        """Derived from the path, so that a file keeps its id when its content changes."""
        return "cfile_" + hashlib.sha256(f"{self.id}/{path}".encode()).hexdigest()[:32]


def _open_session(toolset: Toolset, container: str) -> None:
    try:
        toolset.toolbox.open(conversation_of(container), _PYTHON)
    except TooManySessions as error:
        whose = "You have" if error.of_owner else "All clients together have"
        raise TooManyContainers(
            f"{whose} as many containers as this server allows. Delete one, or try again later: a container "
            f"ends after {IDLE_MINUTES} minutes without use."
        ) from error
    except ToolUnavailable as error:
        raise EngineUnavailable(str(error)) from error


def _plain(name: str) -> str:
    """The path under which the folder lists a file of this name."""
    return "/".join(step for step in name.removeprefix(_FOLDER).split("/") if step not in ("", "."))
