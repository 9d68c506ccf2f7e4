"""The chat command in a pseudo-terminal. Takes keys and returns the text on the screen."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from gpt_oss_server.cli.terminal.response_view import Terminal
from tests.doubles.processes.forked import Command


def shown(*events: dict[str, object], colour: bool = False, reasoning: bool = True) -> str:
    written: list[str] = []
    terminal = Terminal(written.append, colour=colour, reasoning=reasoning)
    for event in events:
        terminal.show(event)
    return "".join(written)


def done(kind: str, **fields: object) -> dict[str, object]:
    return {"type": "response.output_item.done", "item": {"type": kind, **fields}}


@contextmanager
def terminal(
    *words: str, command: str = "chat", fresh: bool = False
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Runs the command in a pseudo-terminal and yields the other end with the process."""
    controller, terminal_end = pty.openpty()
    process = Command[bytes](
        [command, *words],
        stdin=terminal_end,
        stdout=terminal_end,
        stderr=terminal_end,
        takes_terminal=True,
        env={**os.environ, "TERM": "xterm"},
        fresh=fresh,
    )
    os.close(terminal_end)
    try:
        yield controller, process
    finally:
        process.kill()
        process.wait()
        os.close(controller)


def await_text(controller: int, pattern: str, seconds: float = 60) -> str:
    seen, end = "", time.monotonic() + seconds
    while not re.search(pattern, seen):
        ready, _, _ = select.select([controller], [], [], max(0, end - time.monotonic()))
        assert ready, f"no {pattern!r} in {seen!r}"
        try:
            seen += os.read(controller, 4096).decode(errors="replace")
        except OSError:  # the other end is closed
            raise AssertionError(f"the chat ended without {pattern!r}: {seen!r}") from None
    return seen


def press_until_heeded(controller: int, key: bytes, pattern: str) -> None:
    """Presses the key repeatedly: readline handles a Ctrl-C just before its wait only with the next key."""
    seen, end = "", time.monotonic() + 60
    while not re.search(pattern, seen):
        assert time.monotonic() < end, seen
        os.write(controller, key)
        while select.select([controller], [], [], 1)[0]:
            seen += os.read(controller, 4096).decode(errors="replace")
