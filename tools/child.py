"""Starts processes without holding up the event loop, and tells when they end.

In: a command line. Out: `Child`, once it runs. Starting waits until the new process has become its program,
which takes long on a busy machine, so a thread does it. It is one thread for all, and it never ends: a
process that asked to die with its parent (bubblewrap does) dies with the thread that started it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache


class Child:
    """A running process of ours. Made in the event loop, which reaps it."""

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
        except OSError:  # no descriptor is left: it could run, but not be waited for
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
        self._process.kill()  # does nothing to one that has ended, whose number may be another's by now

    async def wait(self) -> int:
        await self._ended.wait()
        return self._process.wait()

    def _reap(self) -> None:
        self._loop.remove_reader(self._handle)
        os.close(self._handle)
        self._process.wait()  # at once: it has ended
        self._ended.set()


async def start(
    argv: Sequence[str],
    *,
    stdin: int,
    output: int,
    env: Mapping[str, str],
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
    errors: int | None = None,
    of_its_own: bool = False,
) -> Child:
    """Starts a process, its words and errors going to `output`, or these to `errors`. Raises OSError.

    `of_its_own`: in a process group that has its number, which can be ended as a whole.

    Until it returns, even when cancelled, the descriptors are in use: closed earlier, their numbers could be
    those of other files when the process inherits them.
    """

    def popen() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=output,
            stderr=output if errors is None else errors,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
            start_new_session=of_its_own,
        )

    starting = asyncio.get_running_loop().run_in_executor(_starter(), popen)
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


@cache
def _starter() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="tool-starter")
