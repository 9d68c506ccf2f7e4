"""A command in a pseudo-terminal. Takes keys and returns the text on the screen."""

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


class Screen:
    """The other end of the pseudo-terminal in which `process` runs."""

    def __init__(self, controller: int, process: subprocess.Popen[bytes]) -> None:
        self.controller = controller
        self.process = process

    def shows(self, pattern: str) -> str:
        """What is shown up to this pattern, which must appear within a minute."""
        seen, end = "", time.monotonic() + 60
        while not re.search(pattern, seen):
            ready, _, _ = select.select([self.controller], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {pattern!r} in {seen!r}"
            try:
                seen += os.read(self.controller, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                raise AssertionError(f"the command ended without {pattern!r}: {seen!r}") from None
        return seen

    def rest(self, seconds: float) -> str:
        """What is shown until nothing has been for so long."""
        seen = ""
        while select.select([self.controller], [], [], seconds)[0]:
            seen += os.read(self.controller, 4096).decode(errors="replace")
        return seen

    def press(self, keys: str) -> None:
        os.write(self.controller, keys.encode())

    def enter(self, line: str, pattern: str) -> str:
        self.press(line + "\n")
        return self.shows(pattern)

    def press_until(self, key: str, pattern: str) -> None:
        """Presses it repeatedly: readline handles a Ctrl-C just before its wait only with the next key."""
        seen, end = "", time.monotonic() + 60
        while not re.search(pattern, seen):
            assert time.monotonic() < end, seen
            self.press(key)
            seen += self.rest(1)

    def quit(self) -> None:
        self.press("\x04")
        assert self.process.wait(60) == 0


@contextmanager
def terminal(*words: str, command: str = "chat", fresh: bool = False) -> Iterator[Screen]:
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
        yield Screen(controller, process)
    finally:
        process.kill()
        process.wait()
        os.close(controller)
