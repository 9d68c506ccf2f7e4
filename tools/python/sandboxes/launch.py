"""Starts a kernel's process and waits until its sockets listen; shared by all sandboxes.

No pipe outlives the start, so that code in the box cannot fill one that this process must read.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tools.child import Child, start
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.inside import READY

WORK_FOLDER = "/mnt/data"  # the tool's declaration names it
SOCKET_FOLDER = "/run/kernel"  # where the kernel's sockets are inside a box
_PORTS = {"shell": 1, "iopub": 2, "stdin": 3, "hb": 4, "control": 5}
_PREFIX = "s"
_KEPT = 8192  # bytes of a failed start's output
_LEAST_DATA = 512 * 1024 * 1024  # numpy's BLAS reserves much memory and uses little; with less it crashes
START_TIMEOUT = 60.0  # a cold disk and a busy machine; a warm start takes well under two seconds


class SandboxError(Exception):
    """A box could not be started; the message states what was observed."""


@dataclass(frozen=True, slots=True)
class KernelConnection:
    """How to reach the kernel: five unix sockets in one folder, as Jupyter numbers them."""

    key: str

    def configuration(self, folder: str) -> dict[str, Any]:
        """The kernel's connection; `folder` is the path of the sockets on the kernel's side."""
        ports = {f"{name}_port": number for name, number in _PORTS.items()}
        return {"transport": "ipc", "ip": f"{folder}/{_PREFIX}", "key": self.key, **ports}

    def path(self, folder: Path, channel: str) -> Path:
        return folder / f"{_PREFIX}-{_PORTS[channel]}"


def program() -> str:
    """The text of `inside.py`, which the box's interpreter runs because this package is not there."""
    return resources.files("tools.python.sandboxes").joinpath("inside.py").read_text("utf-8")


def first_line(
    connection: KernelConnection,
    sockets: str,
    home: str,
    limits: SandboxLimits,
    *,
    count_processes: bool,
    call_filter: str = "",
) -> bytes:
    """The line that `inside.py` reads. `call_filter`: system calls, in base64, if none is loaded yet."""
    caps = {
        "CORE": 0,
        "CPU": limits.cpu_seconds,
        # DATA counts memory that a process can write to privately; AS, which is looser, all that it maps.
        "DATA": max(limits.memory, _LEAST_DATA),
        "AS": 2 * limits.memory + 2 * 1024**3,
        "FSIZE": limits.file_size,
        "NOFILE": limits.open_files,
    }
    if count_processes:
        caps["NPROC"] = limits.processes
    wanted: dict[str, Any] = {"limits": caps, "connection": connection.configuration(sockets)}
    return json.dumps({**wanted, "home": home, "nice": 10, "filter": call_filter}).encode() + b"\n"


def environment(executable: str, home: str) -> dict[str, str]:
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
    return {
        "PATH": f"{os.path.dirname(executable)}:/usr/bin:/bin",
        "HOME": home,
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "IPYTHONDIR": f"{home}/.ipython",
        "MPLCONFIGDIR": f"{home}/.matplotlib",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MALLOC_ARENA_MAX": "2",  # each arena reserves address space, which is limited
        **dict.fromkeys(threads, "2"),
    }


class Spawned:
    """A started process. It ends by itself when this process ends or releases it."""

    def __init__(self, process: Child, output: int, line: int) -> None:
        self.process = process
        self._output = output
        self._line = line

    async def ready(self) -> None:
        """Returns when the kernel listens; raises SandboxError if it fails."""
        words, ready = await collect(self._output, READY)
        if not ready:
            raise SandboxError(words.decode("utf-8", "replace").strip() or "the process ended without a word")
        self._close_output()

    async def end(self) -> None:
        self.process.kill()
        self.let_go()
        await self.process.wait()

    def let_go(self) -> None:
        """Closes the pipes that tie it to this process."""
        self._close_output()
        if self._line >= 0:
            os.close(self._line)
            self._line = -1

    def _close_output(self) -> None:
        if self._output >= 0:
            os.close(self._output)
            self._output = -1


async def spawn(
    argv: Sequence[str],
    *,
    send: bytes,
    env: Mapping[str, str],
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> Spawned:
    """Starts a process that reads `send`; its output is kept until it is ready."""
    get, line = os.pipe()
    output, words = os.pipe()
    try:
        # Written before the process exists, but cannot block: `send` is smaller than a page, a pipe is not.
        os.write(line, send)
        process = await start(argv, stdin=get, output=words, env=env, cwd=cwd, pass_fds=pass_fds)
    except BaseException as error:
        os.close(output)
        os.close(line)
        if isinstance(error, OSError):
            raise SandboxError(f"{argv[0]}: {error.strerror}") from error
        raise
    finally:
        os.close(get)
        os.close(words)
    return Spawned(process, output, line)


async def collect(descriptor: int, until: bytes | None = None) -> tuple[bytes, bool]:
    """Reads a pipe to its end or to a marker without blocking; returns the last bytes, and if marked."""
    os.set_blocking(descriptor, False)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bool] = loop.create_future()
    seen = bytearray()

    def readable() -> None:
        try:
            chunk = os.read(descriptor, 4096)
        except BlockingIOError:
            return
        seen.extend(chunk)
        del seen[:-_KEPT]
        marked = until is not None and until in seen
        if (marked or not chunk) and not done.done():
            done.set_result(marked)

    loop.add_reader(descriptor, readable)
    try:
        async with asyncio.timeout(START_TIMEOUT):
            marked = await done
    except TimeoutError:
        raise SandboxError(f"the kernel was not ready within {START_TIMEOUT:g} s") from None
    finally:
        loop.remove_reader(descriptor)
    return bytes(seen), marked
