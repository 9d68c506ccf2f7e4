"""Starts processes without blocking the event loop, and reports when they end.

Starting waits until the new process has become its program, which takes long on a busy machine, so a thread
does it: one for all, which never ends, because a process may die with the thread that started it.
"""

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

_STARTER = ThreadPoolExecutor(1, thread_name_prefix="tool-starter")


class Child:
    """A running child process. Create it in the event loop, which reaps it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if not hasattr(os, "pidfd_open"):  # only Linux has it; elsewhere a thread waits
            self._waiting = self._loop.run_in_executor(None, process.wait)
            self._waiting.add_done_callback(lambda _: self._ended.set())
            return
        try:
            self._handle = os.pidfd_open(process.pid)
        except OSError:  # no descriptor is left: the process could run, but nothing could wait for it
            process.kill()
            process.wait()
            raise
        self._loop.add_reader(self._handle, self._reap)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def kill(self) -> None:
        self._process.kill()  # does nothing after the end, when the number may belong to another process

    async def wait(self) -> int:
        await self._ended.wait()
        return self._process.wait()

    def _reap(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._process.wait()  # returns immediately, because the process has ended
        self._ended.set()


async def start(
    argv: Sequence[str],
    *,
    stdin: int,
    output: int,
    env: Mapping[str, str],
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> Child:
    """Starts a process. Its output and errors go to `output`. Raises OSError.

    Until this returns, even when cancelled, the descriptors are in use: if closed earlier, the process could
    inherit other files under their numbers.
    """

    def popen() -> "subprocess.Popen[bytes]":  # evaluated at each start otherwise
        return subprocess.Popen(
            list(argv), stdin=stdin, stdout=output, stderr=output, env=env, cwd=cwd, pass_fds=pass_fds
        )

    starting = asyncio.get_running_loop().run_in_executor(_STARTER, popen)
    cancelled: asyncio.CancelledError | None = None
    while not starting.done():
        try:
            await asyncio.wait({starting})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return Child(starting.result())
    if starting.exception() is None:
        child = Child(starting.result())
        child.kill()
        await child.wait()
    raise cancelled


async def run(*argv: str, errors: int = subprocess.STDOUT) -> tuple[int, str]:
    """Runs a short command to its end: its exit status, and its output with its errors. Raises OSError."""
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=nothing, stdout=pipe, stderr=errors)
    output, _ = await process.communicate()
    return await process.wait(), output.decode("utf-8", "replace").strip()
