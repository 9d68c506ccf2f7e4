"""Containers: the python sessions of conversations, found by their ids, and their files.

In: `cntr_…`, the name under which a conversation's calls show their container, and names and bytes of files.
Out: `Container`s, what the API shows of them and of their files, and the files' bytes. A container is there
as long as its conversation's python session is; a file can be put there before the first call too.
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
class Known:
    """What is remembered of a session here: since when, and which files a client has put into it."""

    since: float
    used: float = 0.0  # by a client: its files, or just to be told of it
    name: str | None = None
    put: set[str] = field(default_factory=set)


class Containers:
    """Finds containers by their ids."""

    def __init__(self, service: ResponsesService, tools: ToolsetMaker, clock: Callable[[], float]) -> None:
        self._service = service
        self._tools = tools
        self._clock = clock
        self._known: WeakKeyDictionary[PythonSession, Known] = WeakKeyDictionary()

    async def find(self, container: str) -> Container:
        """To be used: as with OpenAI's, whatever is done with a container keeps it."""
        toolset = await self._tools.ready()
        found = await self._open(toolset, container)
        if found is None:
            raise ContainerNotFound(
                f"There is no container {container!r}. Its conversation did not use python, has ended, or "
                "was idle for so long that its files are gone.",
                param="container_id",
            )
        toolset.toolbox.touch(conversation_of(container), _PYTHON)
        found.known.used = self._clock()
        return found

    async def all(self) -> list[Container]:
        """Those that are there, the oldest first."""
        toolset = await self._tools.ready()
        names = [container_id(each) for each in toolset.toolbox.conversations(_PYTHON)]
        found = [await self._open(toolset, name) for name in names]
        return sorted((each for each in found if each is not None), key=lambda each: each.known.since)

    async def find_or_open(self, container: str) -> Container:
        """Also for a stored conversation that has not used python yet: its session is opened."""
        toolset = await self._tools.ready()
        if _PYTHON not in toolset.local:
            raise ToolNotAvailable(toolset.refusals.get(_PYTHON, CodeInterpreter.off))
        if await self._open(toolset, container) is None and await self._stored_since(
            conversation_of(container)
        ):
            _open_session(toolset, container)
        return await self.find(container)

    async def create(self, container: str, name: str | None) -> Container:
        """One by itself, for requests that name it."""
        toolset = await self._tools.ready()
        if _PYTHON not in toolset.local:
            raise ToolNotAvailable(toolset.refusals.get(_PYTHON, CodeInterpreter.off))
        _open_session(toolset, container)
        made = await self.find(container)
        made.known.name = name
        return made

    async def delete(self, container: str) -> None:
        """Ends the conversation's python, whose next call begins afresh; its other tools go on."""
        await self.find(container)
        (await self._tools.ready()).toolbox.forget(conversation_of(container), _PYTHON)

    async def _open(self, toolset: Toolset, container: str) -> Container | None:
        if _PYTHON not in toolset.local:
            return None
        from tools.python import PythonSession

        session = toolset.toolbox.session(conversation_of(container), _PYTHON)
        if not container.startswith(PREFIX) or not isinstance(session, PythonSession):
            return None  # also where python is another server's, which keeps its files
        known = self._known.get(session)
        if known is None:
            since = await self._stored_since(conversation_of(container))
            known = Known(self._clock() if since is None else since)
            self._known[session] = known
        return Container(container, session, known, self._clock)

    async def _stored_since(self, conversation: str) -> float | None:
        """When what is kept under this id was made; None: nothing is stored."""
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
    known: Known
    clock: Callable[[], float]

    def shown(self) -> dict[str, Any]:
        called = self.session.last_used
        ran = self.clock() - (time.monotonic() - called) if called else 0.0
        return {
            "id": self.id,
            "object": "container",
            "name": self.known.name or self.id,
            "status": "running",
            "created_at": int(self.known.since),
            "last_active_at": int(max(ran, self.known.used, self.known.since)),
            "expires_after": {"anchor": "last_active_at", "minutes": IDLE_MINUTES},
        }

    def shown_file(self, info: FileInfo) -> dict[str, Any]:
        return {
            "id": self._file_id(info.path),
            "object": "container.file",
            "container_id": self.id,
            "created_at": int(info.modified),
            "bytes": info.size,
            "path": _FOLDER + info.path,
            "source": "user" if info.path in self.known.put else "assistant",
        }

    async def files(self) -> list[FileInfo]:
        return await self.session.files()

    async def file(self, file_id: str) -> FileInfo:
        for info in await self.files():
            if self._file_id(info.path) == file_id:
                return info
        raise ContainerFileNotFound(
            f"There is no file {file_id!r} in the container {self.id!r}. List its files to see what is.",
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
        self.known.put.discard(info.path)

    async def put(self, name: str, content: bytes) -> FileInfo:
        from tools.python import FileRefused

        try:
            await self.session.write(name, content)
        except FileRefused as refusal:
            raise InvalidRequest(str(refusal), param="file") from refusal
        path = _plain(name)
        self.known.put.add(path)
        return await self.file(self._file_id(path))

    def _file_id(self, path: str) -> str:
        """Made from the name, so that a file keeps its id while its content changes."""
        return "cfile_" + hashlib.sha256(f"{self.id}/{path}".encode()).hexdigest()[:32]


def _open_session(toolset: Toolset, container: str) -> None:
    try:
        toolset.toolbox.open(conversation_of(container), _PYTHON)
    except TooManySessions as error:
        raise EngineUnavailable(
            "Too many conversations use python at the moment. Try again later."
        ) from error
    except ToolUnavailable as error:
        raise EngineUnavailable(str(error)) from error


def _plain(name: str) -> str:
    """The path under which the folder lists a file of this name."""
    return "/".join(step for step in name.removeprefix(_FOLDER).split("/") if step not in ("", "."))
