"""Runs a program until it ends or the server does, and leaves nothing of it behind.

    python minder.py PROGRAM ARGUMENT…

Standard input is a pipe from the server: it ends when the server does, also by `kill -9`. The exit code is
the program's; 128 and the signal's number where a signal ended it.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

GRACE = 10.0  # seconds from SIGTERM to SIGKILL
_PARENT_DEATH = 1  # Linux: PR_SET_PDEATHSIG


def main(command: Sequence[str]) -> int:
    server = os.getppid()
    awake, alarm = os.pipe()
    for end in (awake, alarm):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that it reaches the pipe
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_minder
        )
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}.")
    while child.poll() is None and os.getppid() == server:
        ready, _, _ = select.select([sys.stdin, awake], [], [], 1.0)
        if sys.stdin in ready and not os.read(sys.stdin.fileno(), 64):
            break
        if awake in ready:
            os.read(awake, 64)
    _end_group(child)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _end_with_minder() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)


def _end_group(child: "subprocess.Popen[bytes]") -> None:
    """The program and what it has started."""
    deadline = time.monotonic() + GRACE
    for sign in (signal.SIGTERM, signal.SIGCONT):
        _send(child.pid, sign)
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    _send(child.pid, signal.SIGKILL)


def _send(group: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone; on macOS, a zombie
        os.killpg(group, sign)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
