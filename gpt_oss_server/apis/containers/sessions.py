"""Containers: the python sessions of conversations, found by their ids, and their files.

Takes `cntr_…`, the id that a conversation's calls report as their container, and names and bytes of files.
Returns `Container`s, their JSON and that of their files, and the files' bytes. A container lives as long as
the python session of its conversation. Whoever has its id may use it, unless requests need keys: then only
its owner may. A list has only those that its reader created.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

from pydantic import Field

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import (
    ContainerNotFound,
    EngineUnavailable,
    InvalidRequest,
    NoSuchFile,
    ToolNotAvailable,
    TooManyContainers,
)
from gpt_oss_server.http.fields import Body, Integer, optional, required
from gpt_oss_server.http.unserved import NotServed
from gpt_oss_server.items.code_interpreter import (
    CONTAINER_NOT_SERVED,
    MOST_FILES,
    CodeInterpreter,
    container_id,
)
from gpt_oss_server.runs.served import Served
from gpt_oss_server.toolset.offered import Toolset
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
    client: str | None = None  # who created it; None: a conversation's calls did
    uploaded: set[str] = field(default_factory=set)


class Containers:
    """Finds containers by their ids."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._clock = served.clock
        self._metadata: WeakKeyDictionary[PythonSession, Metadata] = WeakKeyDictionary()

    async def find(self, container: str, caller: Caller) -> Container:
        """Finds a container for use: as with OpenAI's, every use resets the idle time."""
        caller.access.check_tool(_PYTHON, param=None)
        toolset = await self._served.toolset()
        conversation = toolset.conversation_of(container, _PYTHON, caller)
        session = _session(toolset, conversation)
        if session is None:
            raise ContainerNotFound(self._why_missing(container), param="container_id")
        metadata = await self._metadata_for(session, conversation, caller)
        toolset.toolbox.touch(conversation, _PYTHON)
        metadata.used = self._clock()
        return Container(container, session, metadata, self._clock)

    def _why_missing(self, container: str) -> str:
        is_shared = self._served.stores.claims is not None  # other servers may use the same store
        place = " on this server" if is_shared else ""
        why = (
            f"There is no container {container!r}{place}. Its conversation did not use python, has ended, or "
            "was idle for so long that its files are gone."
        )
        return f"{why} Files stay with the server that ran the python." if is_shared else why

    async def created_by(self, client: str) -> list[Container]:
        """The open containers that this client created, the oldest first."""
        toolset = await self._served.toolset()
        own: list[Container] = []
        for conversation in toolset.toolbox.conversations(_PYTHON):
            session = _session(toolset, conversation)
            metadata = self._metadata.get(session) if session is not None else None
            if session is not None and metadata is not None and metadata.client == client:
                own.append(Container(container_id(conversation), session, metadata, self._clock))
        return sorted(own, key=lambda container: container.metadata.since)

    async def find_to_fill(self, container: str, caller: Caller) -> Container:
        """The same, but where python is off, the error names the setting."""
        await self._ready_with_python(caller)
        return await self.find(container, caller)

    async def create(self, conversation: str, wanted: CreateContainer, caller: Caller) -> Container:
        """Opens a container without a conversation; `conversation` is the unused name of one."""
        toolset, files = await self._ready_with_python(caller), self._served.stores.of(caller.owner).files
        for index, file_id in enumerate(wanted.file_ids or ()):  # first: a missing file opens no container
            await files.find_readable(file_id, f"file_ids[{index}]")
        _open_session(toolset, conversation, caller)
        created = await self.find(container_id(conversation), caller)
        created.metadata.name, created.metadata.client = wanted.name, caller.client
        for index, file_id in enumerate(wanted.file_ids or ()):
            await created.put(*await files.whole(file_id, f"file_ids[{index}]"), caller)
        return created

    async def delete(self, container: str, caller: Caller) -> None:
        """Ends the conversation's python, whose next call starts afresh; its other tools continue."""
        await self.find(container, caller)
        toolset = await self._served.toolset()
        toolset.toolbox.forget(toolset.conversation_of(container, _PYTHON, caller), _PYTHON)

    async def _ready_with_python(self, caller: Caller) -> Toolset:
        caller.access.check_tool(_PYTHON, param=None)
        toolset = await self._served.toolset()
        if _PYTHON not in toolset.local:
            raise ToolNotAvailable(toolset.refusals.get(_PYTHON, CodeInterpreter.off))
        return toolset

    async def _metadata_for(self, session: PythonSession, conversation: str, caller: Caller) -> Metadata:
        metadata = self._metadata.get(session)
        if metadata is None:
            since = await self._stored_since(conversation, caller)
            metadata = Metadata(self._clock() if since is None else since)
            self._metadata[session] = metadata
        return metadata

    async def _stored_since(self, conversation: str, caller: Caller) -> float | None:
        """When the stored response or conversation of this id was created; None if none is stored."""
        keep = self._served.stores.of(caller.owner)
        if (response := await keep.responses.get(conversation)) is not None:
            return float(response.response["created_at"])
        named = await keep.conversations.get_conversation(conversation)
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
        of_user = info.path in {*self.metadata.uploaded, *self.session.attached.values()}
        return {
            "id": self._file_id(info.path),
            "object": "container.file",
            "container_id": self.id,
            "created_at": int(info.modified),
            "bytes": info.size,
            "path": _FOLDER + info.path,
            "source": "user" if of_user else "assistant",
        }

    async def file(self, file_id: str) -> FileInfo:
        for info in await self.session.files():
            if self._file_id(info.path) == file_id:
                return info
        raise NoSuchFile(
            f"There is no file {file_id!r} in the container {self.id!r}. List its files to see their ids.",
            param="file_id",
        )

    async def read(self, info: FileInfo) -> bytes:
        with _refusals("file_id"):
            return await self.session.read(info.path)

    async def remove(self, info: FileInfo) -> None:
        with _refusals("file_id"):
            await self.session.remove(info.path)
        self.metadata.uploaded.discard(info.path)

    async def put(self, name: str, content: bytes, caller: Caller) -> FileInfo:
        with _refusals("file"):
            await self.session.write(name, content, caller.tool_client)
        # The folder lists the file under this path.
        path = "/".join(step for step in name.removeprefix(_FOLDER).split("/") if step not in ("", "."))
        self.metadata.uploaded.add(path)
        return await self.file(self._file_id(path))

    def _file_id(self, path: str) -> str:
        """Derived from the path, so that a file keeps its id when its content changes."""
        return "cfile_" + hashlib.sha256(f"{self.id}/{path}".encode()).hexdigest()[:32]


@contextmanager
def _refusals(param: str) -> Iterator[None]:
    """Turns what the session refuses into errors about this parameter."""
    from tools.python import FileRefused, NoMemoryLeft

    try:
        yield
    except NoMemoryLeft as refusal:
        raise TooManyContainers(f"The file cannot be stored: {refusal}.", param=param) from refusal
    except FileRefused as refusal:
        raise InvalidRequest(str(refusal), param=param) from refusal


def _session(toolset: Toolset, conversation: str) -> PythonSession | None:
    if not conversation or _PYTHON not in toolset.local:
        return None
    from tools.python import PythonSession

    session = toolset.toolbox.session(conversation, _PYTHON)
    return session if isinstance(session, PythonSession) else None  # another server may run python


def _open_session(toolset: Toolset, conversation: str, caller: Caller) -> None:
    try:
        toolset.toolbox.open(conversation, _PYTHON, caller.tool_client)
    except TooManySessions as error:
        holder = "You have" if error.of_owner else "All clients together have"
        raise TooManyContainers(
            f"{holder} as many containers as this server allows. Delete one, or try again later: a container "
            f"ends after {IDLE_MINUTES} minutes without use."
        ) from error
    except ToolUnavailable as error:
        raise EngineUnavailable(str(error)) from error


IDLE_MINUTES = 20  # a session ends, and loses its files, after this time without a call


class ExpiresAfter(Body):
    anchor: Literal["last_active_at"] = required("Always `last_active_at`.")
    minutes: Annotated[Integer, Field(ge=1, le=IDLE_MINUTES)] = required(
        "Minutes after the last use. The container ends after 20 in any case."
    )


class CreateContainer(Body):
    """Every field may be left out. A container lasts for 20 minutes after its last use."""

    not_served: ClassVar[NotServed] = CONTAINER_NOT_SERVED

    name: str | None = optional("Shown in lists, which can be searched for it.")
    file_ids: Annotated[list[str], Field(max_length=MOST_FILES)] | None = optional(
        "Files that are copied into it."
    )
    expires_after: ExpiresAfter | None = optional(
        "When the container ends: at most 20 minutes after its last use."
    )
