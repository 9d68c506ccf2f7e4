"""One conversation's Python: a kernel, started when needed, and its files.

Returns `ToolOutput`s whose `details` are `{"outputs": [{"type": "logs", "logs": …} | {"type": "image", "url":
"data:image/png;base64,…"}, …]}` in order of arrival, and whose `text` is the same for the model. `failed` is
True if the call did not run to its end (time-out, dead kernel, no sandbox); an exception in the code is an
ordinary result.

The kernel starts at the first call. When it ends (given up for others, dead, killed), its variables are lost,
and the next output reports that; the files in /mnt/data stay until the session closes.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tools.python import program, shell
from tools.python.channel import ChannelEnded
from tools.python.kernel import Ended, Kernel
from tools.python.outputs import CellOutputLimits, Outputs
from tools.python.sandboxes.folder import FileInfo, FileRefused, Folder
from tools.python.sandboxes.launch import KernelConnection, SandboxError
from tools.python.sandboxes.sandbox import Sandbox
from tools.python.shared import NoMemoryLeft, SharedMemory, Slots
from tools.skills import MOST_BYTES, SkillRefused, unpack
from tools.tool import NOBODY, Client, ToolCall, ToolOutput, ToolUnavailable

T = TypeVar("T")

NO_OUTPUT = "[no output: use print(), or end with an expression, to see a result]"
_GONE = "Variables and imports of earlier calls are gone; files in /mnt/data are kept."


_WRAPPED = {
    shell.FUNCTION: (shell.cell, shell.answered, shell.PRINTED),
    program.FUNCTION: (program.cell, program.answered, program.PRINTED),
}
_WAIT_SECONDS = 60.0  # for a place when all kernels are busy
_MAX_FILE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What all sessions of one tool share. `timeout` and `grace` are seconds."""

    sandbox: Sandbox
    slots: Slots
    memory: SharedMemory
    timeout: float  # of a call
    grace: float  # between an interrupt and the kill
    # A start takes half a second of processor time: many simultaneous ones would starve the server's thread.
    starts: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(max(2, (os.cpu_count() or 1) // 2))
    )


class PythonSession:
    def __init__(self, shared: SharedParts, forget: Callable[[PythonSession], None]) -> None:
        self._shared = shared
        self._forget = forget
        self._turn = asyncio.Lock()  # held by anything that starts, uses or ends the kernel
        self._kernel: Kernel | None = None
        self._data: Folder | None = None  # the files of an ended kernel
        self._ended_because: str | None = None  # not yet reported to the model
        self._cancelled = False  # the code of a cancelled call may still run
        self._settling: set[asyncio.Task[None]] = set()
        self._closed = False
        self.attached: dict[str, str] = {}  # the names of files of requests in /mnt/data, by their ids
        self._unpacked: dict[str, str] = {}  # the ids of skills in their folder, by their names
        self._skills: Path | None = None  # this machine's folder, which boxes show
        self.owner = ""  # until the first use

    @property
    def alive(self) -> bool:
        return self._kernel is not None and self._kernel.alive

    @property
    def retirable(self) -> bool:
        return self._kernel is not None and not (self._turn.locked() or self._cancelled)

    @property
    def held(self) -> int:
        """The bytes of memory that its kernel holds with its files, or the files alone."""
        if self._kernel is not None and self._kernel.alive:
            return self._kernel.box.held
        data = self._kernel.box.data if self._kernel is not None else self._data
        return data.in_memory if data is not None else 0

    @property
    def last_used(self) -> float:
        return self._kernel.used if self._kernel else 0.0

    async def run(self, call: ToolCall) -> ToolOutput:
        """Runs source, a program, or commands of the shell, beside the files of the option `files`.

        Cancelling it stops the code: first by an interrupt, then by killing the kernel.
        """
        if call.function in _WRAPPED:
            cell, answered, printed = _WRAPPED[call.function]
            try:
                source = cell(call.arguments, call.options)
            except ValueError as error:
                return answered(ToolOutput(str(error), failed=True))
            return answered(await self._run_in_turn(source, call, CellOutputLimits(printed)))
        if call.function:
            wrong = f"The python tool has no function {call.function!r}."
            return _failed(f"{wrong} Send the source itself to `python`.")
        return await self._run_in_turn(read_source(call.arguments), call, CellOutputLimits())

    async def _run_in_turn(self, source: str, call: ToolCall, limits: CellOutputLimits) -> ToolOutput:
        self.owner = self._shared.memory.owner(call.client)
        try:
            for file in call.options.get("files", ()):
                if file.id not in self.attached and (content := await file.read()) is not None:
                    await self.write(file.name, content, call.client)
                    self.attached[file.id] = file.name
            for skill in call.options.get("skills", ()):
                is_there = self._unpacked.get(skill.name) == skill.id
                if not is_there and (content := await skill.read()) is not None:
                    await asyncio.to_thread(self._unpack, skill.name, content)
                    self._unpacked[skill.name] = skill.id
        except (FileRefused, NoMemoryLeft, SkillRefused) as error:
            return _failed(f"The code did not run: {error}")
        async with self._turn:
            try:
                await self._settle()
                return await self._run(source, Outputs(limits))
            except asyncio.CancelledError:
                self._stop_soon()
                raise
            finally:
                self._shared.slots.rest()

    async def files(self) -> list[FileInfo]:
        folder = self._folder()
        if folder is None:
            return []
        with closing(folder):
            return await asyncio.to_thread(folder.files)

    async def read(self, path: str) -> bytes:
        """Reads a file of /mnt/data. Raises FileRefused with a sentence for anything else."""
        return await self._in_folder(path, lambda folder: folder.read(path, _MAX_FILE))

    async def write(self, path: str, content: bytes, client: Client = NOBODY) -> None:
        """Writes a file into /mnt/data; starts the kernel if necessary. Raises FileRefused."""
        if len(content) > _MAX_FILE:
            raise FileRefused(f"{path!r} is refused: larger than {_MAX_FILE} bytes.")
        self.owner = self._shared.memory.owner(client)
        if self._kernel is None and self._data is None:
            await self._start_for(path)
        async with self._shared.memory.room_for_a_file(len(content), self):
            folder = self._folder()
            if folder is None:
                raise FileRefused(f"{path!r} cannot be stored: the session is closed.")
            with closing(folder):
                await asyncio.to_thread(folder.write, path, content)

    async def remove(self, path: str) -> None:
        """Deletes a file of /mnt/data, even while code runs. Raises FileRefused as `read` does."""
        await self._in_folder(path, lambda folder: folder.remove(path))

    async def retire(self, reason: str) -> None:
        """Ends the kernel between calls; the next output reports the reason."""
        async with self._turn:
            await self._settle()
            await self._end_kernel(reason)

    async def kill(self, reason: str) -> None:
        """Kills the kernel, also during a call, whose output then reports the reason."""
        if self._kernel is not None:
            await self._kernel.kill(reason)

    async def close(self) -> None:
        """Kills the kernel with everything it started, and drops the files."""
        self._closed = True
        if self._kernel is not None:
            self._kernel.box.kill()  # a running call ends immediately, as for a dead kernel
        async with self._turn:
            await self._settle()
            await self._end_kernel("the session was closed")
            if self._data is not None:
                self._data.close()
                self._data = None
        if self._skills is not None:
            await asyncio.to_thread(shutil.rmtree, self._skills, ignore_errors=True)
        await asyncio.gather(*self._settling)
        self._forget(self)

    def _skills_folder(self) -> Path:
        if self._skills is None:
            self._skills = Path(tempfile.mkdtemp(prefix="gpt-oss-python-skills-"))
            self._skills.chmod(0o755)
        return self._skills

    def _unpack(self, name: str, bundle: bytes) -> None:
        """Puts a skill in place of one of its name; boxes that run see it too."""
        if not self._shared.sandbox.isolated:
            raise SkillRefused("Skills need a sandbox, and python runs without one here.")
        shutil.rmtree(folder := self._skills_folder() / name, ignore_errors=True)
        unpack(bundle, folder)
        if sum(path.stat().st_size for path in self._skills_folder().rglob("*")) > 2 * MOST_BYTES:
            shutil.rmtree(folder)
            raise SkillRefused(f"The skills of a container have {2 * MOST_BYTES // 2**20} MB at most.")

    async def _start_for(self, path: str) -> None:
        """Starts a kernel, which has the folder for the file."""
        try:
            async with self._turn:
                await self._ready()
        except (SandboxError, ToolUnavailable) as error:
            raise FileRefused(f"{path!r} cannot be stored: {error}") from error
        finally:
            self._shared.slots.rest()  # as after a call, because others may wait for the place

    async def _run(self, source: str, outputs: Outputs) -> ToolOutput:
        try:
            kernel = await self._ready()
        except (SandboxError, ToolUnavailable, NoMemoryLeft) as error:
            return _failed(f"The code did not run: {error}")
        if self._ended_because is not None:
            outputs.note(f"[The kernel was restarted: {self._ended_because}. {_GONE}]")
            self._ended_because = None
        try:
            async with asyncio.timeout(self._shared.timeout):
                ended = await kernel.execute(source, outputs)
        except TimeoutError:
            await self._overdue(kernel, outputs)
            return _output(outputs, failed=True)
        if ended is Ended.DONE:
            return _output(outputs)
        await self._died(kernel, ended, outputs)
        return _output(outputs, failed=True)

    async def _overdue(self, kernel: Kernel, outputs: Outputs) -> None:
        limit = f"{self._shared.timeout:g} seconds"
        if await kernel.stop(self._shared.grace):
            outputs.note(f"[Timed out: the code was interrupted after {limit}. Variables are kept.]")
            return
        await self._end_kernel(None)
        why = kernel.box.verdict or "it did not react to an interrupt"
        outputs.note(
            f"[Timed out after {limit}, and the kernel was killed: {why}. {_GONE} "
            "The next call starts a fresh kernel.]"
        )

    async def _died(self, kernel: Kernel, ended: Ended, outputs: Outputs) -> None:
        await self._end_kernel(None)
        why = kernel.box.verdict
        if why is None and ended is Ended.LOST:
            why = "its output was too large or could not be read"
        ending = f"was killed: {why}" if why else "died: its process ended"
        outputs.note(f"[The kernel {ending}. {_GONE} The next call starts a fresh kernel.]")

    def _stop_soon(self) -> None:
        """Stops the code of a cancelled call in the background; the next call waits for that."""
        self._cancelled = True
        task = asyncio.create_task(self._settle_in_turn())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle_in_turn(self) -> None:
        async with self._turn:
            await self._settle()
        self._shared.slots.rest()

    async def _settle(self) -> None:
        """Ensures that nothing of a cancelled call still runs. The caller holds the turn."""
        if not self._cancelled:
            return
        kernel = self._kernel
        if kernel is not None and not await kernel.stop(self._shared.grace):
            await self._end_kernel("the call before was cancelled and did not stop")
        self._cancelled = False

    async def _ready(self) -> Kernel:
        """The kernel; starts one if none is alive."""
        if self._closed:
            raise SandboxError("the session is closed")
        if self._kernel is not None and not self._kernel.alive:
            verdict = self._kernel.box.verdict
            await self._end_kernel(verdict or "its process had ended between calls")
        if self._kernel is None:
            self._kernel = await self._start()
            self._data = None
            self._shared.memory.kernel_started()
        if self._closed:  # closed meanwhile; close() waits for this turn and ends the kernel
            raise SandboxError("the session is closed")
        return self._kernel

    async def _start(self) -> Kernel:
        shared = self._shared
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await shared.slots.take(self)
        except TimeoutError:
            raise SandboxError("all Python kernels are in use; try again later") from None
        try:
            connection = KernelConnection(secrets.token_hex(32))
            limit = shared.memory.owners_limit(self.owner)
            sandbox = shared.sandbox if limit is None else shared.sandbox.within(limit)
            async with shared.starts, shared.memory.room_for_a_kernel(self):
                box = await sandbox.start(connection, self._data, self._skills_folder())
        except BaseException:
            shared.slots.give(self)
            raise
        self._data = box.data
        kernel = Kernel(box, connection)
        try:
            await kernel.connect()
            if not await kernel.greet():
                raise SandboxError("the kernel started but does not answer")
        except BaseException as error:
            await kernel.end()
            shared.slots.give(self)
            if isinstance(error, ChannelEnded):
                raise SandboxError(f"the kernel started but cannot be reached: {error}") from error
            raise
        return kernel

    async def _end_kernel(self, reason: str | None) -> None:
        """Ends the kernel, if there is one. The next output reports `reason` to the model."""
        kernel, self._kernel = self._kernel, None
        if kernel is None:
            return
        self._ended_because = reason
        self._data = kernel.box.data
        try:
            await kernel.end()
        finally:
            self._shared.slots.give(self)

    async def _in_folder(self, path: str, work: Callable[[Folder], T]) -> T:
        folder = self._folder()
        if folder is None:
            raise FileRefused(f"There is no file {path!r}: nothing has been written yet.")
        with closing(folder):
            return await asyncio.to_thread(work, folder)

    def _folder(self) -> Folder | None:
        """The files, with a descriptor that stays valid whatever happens to the kernel."""
        data = self._kernel.box.data if self._kernel is not None else self._data
        return data.duplicate() if data is not None else None


def _output(outputs: Outputs, *, failed: bool = False) -> ToolOutput:
    return ToolOutput(outputs.text() or NO_OUTPUT, failed, {"outputs": outputs.entries()})


def _failed(text: str) -> ToolOutput:
    return ToolOutput(text, True, {"outputs": [{"type": "logs", "logs": text}]})


_CODE_KEYS = frozenset({"code", "source", "python", "script", "input"})
_FENCE = re.compile(r"```[ \t]*(?:(?:python3?|py|ipython|tool_code)[ \t]*)?\r?\n", re.IGNORECASE)


def read_source(arguments: str) -> str:
    """The source of a call, also of one that is JSON with nothing else. No Python source has such a key."""
    call = shell.read_call(arguments) if arguments.lstrip().startswith("{") else {}
    if len(call) == 1:
        ((key, source),) = call.items()
        if key in _CODE_KEYS and isinstance(source, str):
            return _without_fence(source)
    return _without_fence(arguments)


def _without_fence(text: str) -> str:
    bare = text.strip()
    opening = _FENCE.match(f"{bare}\n")
    if opening is None:
        return text
    source = bare[opening.end() :]
    if source.endswith("```"):
        source = source.removesuffix("```").removesuffix("\n").removesuffix("\r")
    return text if "```" in source else source
