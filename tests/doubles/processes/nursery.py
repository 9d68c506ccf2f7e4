"""Forks for each run of the command, whose imports it has made: `python -m` this with the number of a socket.

Takes requests over the socket: `sys.argv`, environment, folder and the descriptors of a run. Returns, on each
run's own socket, its process id and, at its end, its status as `os.waitpid` gives it.
"""

import array
import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import selectors
import signal
import socket
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable
from fcntl import ioctl
from typing import Any, NoReturn

_LARGEST_REQUEST = 1 << 18
_DESCRIPTORS = 4  # standard input, output and errors, and the run's own socket
_HIGHEST_DESCRIPTOR = 1024
# What the commands import. Nothing here may start a thread: a process with threads must not fork.
_MODULES = """
gpt_oss_server.cli.server.start gpt_oss_server.cli.server.http_server gpt_oss_server.cli.chat.loop
gpt_oss_server.cli.chat.remote gpt_oss_server.cli.chat.reader
gpt_oss_server.app gpt_oss_server.apis.chat.service gpt_oss_server.cli.main gpt_oss_server.observe.logs.setup
gpt_oss_server.stores.kinds.table inference.remote.connection inference.backends.scripted llguidance
tools.browser.backends.local tools.mcp.operator tools.mcp.serve tools.python.sandboxes.unsafe_local uvloop
"""
_TORCH_MODULES = "torch inference.local.engine inference.local.torch_runner inference.tiny safetensors.torch"


def main() -> int:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, whose end ends this process
    run = _command()
    gc.freeze()
    if _fork_on_request(control):
        end_with(run)
    return 0


def _command() -> Callable[[], int]:
    _import(_MODULES)
    _import_torch()
    import inference
    from gpt_oss_server.cli.main import main as command
    from gpt_oss_server.cli.parser import build_parser
    from gpt_oss_server.harmony.encoding import load_encoding

    build_parser(everything=True)  # imports the commands
    load_encoding()
    inference.load("scripted:examples/script.json")  # has a vocabulary of its own
    return command


def end_with(run: Callable[[], int]) -> NoReturn:
    """Runs it and ends as Python does, except that no module is taken apart, which would copy its memory."""
    try:
        code = run()
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else 0 if exit.code is None else 1
        if not isinstance(exit.code, int | None):
            sys.stderr.write(f"{exit.code}\n")
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # Python reports it and continues
            stream.flush()
    os._exit(code)


def _import(modules: str) -> None:
    for name in modules.split():
        importlib.import_module(name)


def _import_torch() -> None:
    """As `serve` does; its thread has ended when torch is imported."""
    from inference.torch_start import preload_torch

    if thread := preload_torch():
        thread.join()
    _import(_TORCH_MODULES)


def _fork_on_request(control: socket.socket) -> bool:
    """Returns true in each new process, and false here, when no more requests can come."""
    runs: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as ready:
        ready.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is not control:
                    ready.unregister(key.fileobj)
                    _report_end(key.fd, *runs.pop(key.fd))
                    continue
                message, descriptors = _received(control)
                if not message:
                    return False
                own = descriptors[-1]
                process = os.fork()
                if process == 0:
                    _become(json.loads(message), descriptors)
                    return True
                for descriptor in descriptors[:-1]:
                    os.close(descriptor)
                reports = socket.socket(fileno=own)
                reports.send(b"%d" % process)
                watched = os.pidfd_open(process)
                runs[watched] = (process, reports)
                ready.register(watched, selectors.EVENT_READ)


def _received(control: socket.socket) -> tuple[bytes, list[int]]:
    descriptors = array.array("i")
    room = socket.CMSG_SPACE(_DESCRIPTORS * descriptors.itemsize)
    message, ancillary, _, _ = control.recvmsg(_LARGEST_REQUEST, room)
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return message, list(descriptors)


def _report_end(watched: int, process: int, reports: socket.socket) -> None:
    os.close(watched)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(BrokenPipeError):  # the test does not wait for this process
        reports.send(b"%d" % status)
    reports.close()


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Gives the new process what the system and Python give one at its start."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, _HIGHEST_DESCRIPTOR)
    if request["takes_terminal"]:
        os.setsid()
        take_terminal()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = request["arguments"]
    sys.path[0] = request["folder"]
    sys.stdin = sys.__stdin__ = _stream(sys.stdin, 0)
    sys.stdout = sys.__stdout__ = _stream(sys.stdout, 1)
    sys.stderr = sys.__stderr__ = _stream(sys.stderr, 2)


def take_terminal() -> None:
    """Makes standard input the controlling terminal, and enables SIGINT, which background jobs ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ioctl(0, termios.TIOCSCTTY, 0)


def _stream(like: Any, number: int) -> io.TextIOWrapper:
    binary = os.fdopen(number, "rb" if number == 0 else "wb", 0 if like.write_through else -1, closefd=False)
    lines = number == 2 or os.isatty(number)
    return io.TextIOWrapper(
        binary, like.encoding, like.errors, line_buffering=lines, write_through=like.write_through
    )


if __name__ == "__main__":
    sys.exit(main())
