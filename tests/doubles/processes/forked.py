"""`subprocess.Popen` for the command, without the seconds that its imports take.

Where it can be, a `Command` is forked from a process that has made the imports (`nursery`); otherwise, and
with `fresh=True`, Python starts as a user's does.
"""

import atexit
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr

from tests.doubles.processes.nursery import take_terminal

ROOT = Path(__file__).parents[3]
COMMAND = (sys.executable, "-m", "gpt_oss_server")
# Python, and what it imports, reads other variables only once. Loading torch sets the last two, at any time.
_READ_WHILE_IT_RUNS = (
    "GPT_OSS_SERVER_", "OPENAI_", "TOUR_", "XDG_", "PYTEST_", "EXA_API_KEY", "PATH", "TERM", "COLUMNS",
    "NO_COLOR", "SSL_CERT_", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT",
)  # fmt: skip


class Command(subprocess.Popen[AnyStr]):
    """Overrides how `Popen` starts a process and how it waits for one."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        fresh: bool = False,
        takes_terminal: bool = False,
        **options: Any,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        self._nursery = None if fresh else _nursery_for(environment)
        arguments = [str(ROOT / "gpt_oss_server" / "__main__.py"), *words]
        self._request: dict[str, Any] = {"arguments": arguments, "folder": os.path.abspath(cwd or ".")}
        self._request["takes_terminal"] = takes_terminal
        self._reports: socket.socket | None = None
        if takes_terminal and self._nursery is None:
            options.update(start_new_session=True, preexec_fn=take_terminal)
        super().__init__([*COMMAND, *words], env=environment, cwd=cwd, **options)

    def _execute_child(self, *given: Any) -> None:
        if self._nursery is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        env, pipes = given[6], given[10:16]
        read_end, _, _, written_end, _, errors_end = pipes
        request = {**self._request, "environment": env}
        ends = [own if end == -1 else end for own, end in enumerate((read_end, written_end, errors_end))]
        self._reports, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                socket.send_fds(self._nursery, [json.dumps(request).encode()], [*ends, theirs.fileno()])
            self.pid = int(self._reports.recv(32) or 0)
            if not self.pid:
                raise RuntimeError("The process that forks for the tests has ended.")
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if self._reports is None:
            return super()._try_wait(flags)  # type: ignore[misc, no-any-return]
        if flags & os.WNOHANG and not select.select([self._reports], [], [], 0)[0]:
            return 0, 0
        status = self._reports.recv(32)
        self._reports.close()
        return self.pid, int(status or 0)

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._reports is None:
            return super()._internal_poll(*given, **named)  # type: ignore[misc, no-any-return]
        with self._waitpid_lock:  # type: ignore[attr-defined]
            if self.returncode is None:
                process, status = self._try_wait(os.WNOHANG)
                if process:
                    self._handle_exitstatus(status)  # type: ignore[attr-defined]
        return self.returncode


def _nursery_for(environment: Mapping[str, str]) -> socket.socket | None:
    """None where the run needs a Python of its own."""
    if not hasattr(os, "pidfd_open"):
        return None
    control, its_environment = _nursery()
    differing = {name for name, _ in environment.items() ^ its_environment.items()}
    return control if all(name.startswith(_READ_WHILE_IT_RUNS) for name in differing) else None


@cache
def _nursery() -> tuple[socket.socket, Mapping[str, str]]:
    """One for all tests of this process: the socket that requests go to, and its environment."""
    environment = dict(os.environ)
    control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its_end:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.doubles.processes.nursery", str(its_end.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[its_end.fileno()],
            cwd=ROOT,
            env={**environment, "OPENBLAS_NUM_THREADS": "1"},  # others would be threads of the nursery
        )
    atexit.register(_end, process, control)
    return control, environment


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    control.close()
    process.wait()
