"""The first program inside a box: it applies its limits, then becomes the kernel.

Takes one line of JSON on standard input (`limits`, `connection`, `home`, `nice`, `filter`). Writes `READY`
once the kernel's sockets listen. Only this file's text goes into the box: it imports only the standard
library and ipykernel. It is not a guard: code that it runs later can undo everything here except lowered
limits. The guards are outside.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import resource
import sys
import threading
from typing import Any

READY = b"\x00kernel ready\x00"
MAX_TEXT = 256 * 1024  # characters of one string in one message, far more than the host keeps
MAX_IMAGE = 6 * 1024 * 1024  # characters of base64
WAITING_OUTPUTS = 50  # messages: an interrupted cell ends only when the host has read them


def lower_limits(limits: dict[str, int]) -> None:
    """Sets each limit, never above the current one."""
    for name, wanted in limits.items():
        number = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(number)
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(number, (value, value))


def load_filter(program: bytes) -> None:
    """Loads a filter of system calls, which all later processes inherit and nothing can remove."""

    class Program(ctypes.Structure):  # struct sock_fprog
        _fields_ = (("steps", ctypes.c_ushort), ("code", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    wanted = Program(len(program) // 8, program)
    no_new_privileges, set_filter, by_program = 38, 22, 2
    done = libc.prctl(no_new_privileges, *map(ctypes.c_ulong, (1, 0, 0, 0))) == 0
    if not done or libc.prctl(set_filter, ctypes.c_ulong(by_program), ctypes.byref(wanted)) != 0:
        raise OSError(ctypes.get_errno(), "the filter of system calls cannot be loaded")


def be_first() -> None:
    """If this is the first process of a container, continues as a child; the parent stays to adopt orphans.

    The engine's own first process would lack the filter.
    """
    if os.getpid() != 1:
        return
    child = os.fork()
    while child:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def shortened(value: Any) -> tuple[Any, int]:
    """The value as the host accepts it, and how many characters were cut in the middle of long strings.

    A cell that prints a gigabyte in one call puts it into one message, which the host refuses. Halves of
    characters (lone surrogates), which a message cannot hold, become question marks.
    """
    if isinstance(value, str):
        return _shortened_text(value)
    if isinstance(value, dict):
        parts = {_whole(key): _shortened_entry(key, item) for key, item in value.items()}
        return {key: item for key, (item, _) in parts.items()}, sum(cut for _, cut in parts.values())
    if isinstance(value, list | tuple):
        items = [shortened(item) for item in value[:1000]]
        return [item for item, _ in items], sum(cut for _, cut in items)
    return value, 0


def _shortened_entry(key: Any, item: Any) -> tuple[Any, int]:
    if isinstance(key, str) and key.startswith("image/") and isinstance(item, str | bytes):
        return (item, 0) if len(item) <= MAX_IMAGE else ("", len(item))
    return shortened(item)


def _shortened_text(text: str) -> tuple[str, int]:
    cut = len(text) - MAX_TEXT
    if cut <= 0:
        return _whole(text), 0
    half = MAX_TEXT // 2
    return _whole(f"{text[:half]}\n[…]\n{text[-half:]}"), cut


def _whole(text: Any) -> Any:
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else text


def bound_messages() -> None:
    """Shortens every message that the kernel sends to a size that the host accepts."""
    from jupyter_client.session import Session

    serialize = Session.serialize

    def bounded(self: Any, msg: dict[str, Any], ident: Any = None) -> list[bytes]:
        content, cut = shortened(msg.get("content", {}))
        metadata = {**msg.get("metadata", {}), "cut": cut} if cut else msg.get("metadata", {})
        return serialize(self, {**msg, "content": content, "metadata": metadata}, ident)

    Session.serialize = bounded  # type: ignore[method-assign]


def lose_no_outputs(application: Any) -> None:
    """Code that prints faster than the host reads waits; ZeroMQ would drop its outputs, the last ones too."""
    init_iopub = application.init_iopub

    def waiting(self: Any, context: Any) -> None:
        context.sndhwm, context.xpub_nodrop = WAITING_OUTPUTS, True  # for the socket that is made now
        init_iopub(self, context)
        del context.sndhwm, context.xpub_nodrop

    application.init_iopub = waiting


def find_modules_here() -> None:
    """Finds modules in the current folder, as notebooks do. IPython omits this if Python is isolated."""
    installed = (at for at, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages")))
    sys.path.insert(next(installed, len(sys.path)), "")


def start_kernel(connection: dict[str, Any]) -> None:
    from ipykernel.kernelapp import IPKernelApp
    from traitlets.config import Config

    bound_messages()
    lose_no_outputs(IPKernelApp)
    config = Config()
    config.Session.key = connection.pop("key").encode()
    config.InteractiveShell.colors = "nocolor"
    config.HistoryManager.enabled = False  # its database would need a disk and a thread
    config.IPKernelApp.update(connection)
    app = IPKernelApp.instance(config=config)
    app.initialize([])  # type: ignore[no-untyped-call]
    find_modules_here()
    os.write(1, READY)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    app.start()  # type: ignore[no-untyped-call]


def end_with_the_host(line: int) -> None:
    """Waits for the end of the pipe that the host holds, then ends this process."""
    while os.read(line, 1):
        continue
    os._exit(0)


def main() -> None:
    wanted = json.loads(sys.stdin.buffer.readline())
    line = os.dup(0)  # unlike 0, from which programs may read, it is not inherited
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if wanted["filter"]:
        load_filter(base64.b64decode(wanted["filter"]))  # before any thread, which would run without it
    be_first()
    threading.Thread(target=end_with_the_host, args=(line,), daemon=True).start()
    os.setpgid(0, 0)  # a leader, so that an interrupt reaches the programs that the code started
    os.nice(wanted["nice"])
    lower_limits(wanted["limits"])
    os.makedirs(wanted["home"], exist_ok=True)
    os.environ["HOME"] = wanted["home"]
    start_kernel(wanted["connection"])


if __name__ == "__main__":
    main()
