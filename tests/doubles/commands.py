"""Runs the command, or a script, as a user does: in its own process, also in a pseudo-terminal."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.terminal.response_view import Terminal
from tests.doubles.processes.forked import COMMAND as COMMAND
from tests.doubles.processes.forked import Command

_PIPES: dict[str, Any] = {**dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), "text": True}


def run(
    *words: str, stdin: str = "", env: dict[str, str] | None = None, timeout: float = 90, **options: Any
) -> subprocess.CompletedProcess[str]:
    """With `fresh`, in a Python of its own, as a user's."""
    with Command[str](words, env={**os.environ, **(env or {})}, **_PIPES, **options) as process:
        try:
            output, errors = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def refused(*words: str, code: int = 1, **options: Any) -> str:
    """Runs a command that must fail with a sentence alone, on standard error, and returns that."""
    done = run(*words, **options)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def run_script(path: Path, *, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, str(path)], {**os.environ, **env}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)


def script(folder: Path, *turns: str | dict[str, Any], tokens_per_second: float = 0) -> str:
    """Writes a script with these turns and returns its model name."""
    path = folder / "script.json"
    path.write_text(json.dumps({"turns": turns, "loop": True, "tokens_per_second": tokens_per_second}))
    return f"scripted:{path}"


def final(text: str, when: str | None = None) -> dict[str, str]:
    """A turn that answers with this text, where its prompt matches `when`."""
    turn = {"text": f"<|channel|>final<|message|>{text}<|return|>"}
    return turn if when is None else {**turn, "when": when}


ANSWER = f"<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant{final('Hello!')['text']}"


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
                seen += self.read()
            except OSError:  # the other end is closed
                raise AssertionError(f"the command ended without {pattern!r}: {seen!r}") from None
        return seen

    def rest(self, seconds: float) -> str:
        """What is shown until nothing has been for so long."""
        seen = ""
        with suppress(OSError):  # the other end is closed
            while select.select([self.controller], [], [], seconds)[0]:
                seen += self.read()
        return seen

    def read(self) -> str:
        return os.read(self.controller, 4096).decode(errors="replace")

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
def terminal(
    *words: str, command: str = "chat", fresh: bool = False, folder: Path | None = None
) -> Iterator[Screen]:
    controller, terminal_end = pty.openpty()
    process = Command[bytes](
        [command, *words],
        stdin=terminal_end,
        stdout=terminal_end,
        stderr=terminal_end,
        takes_terminal=True,
        env={**os.environ, "TERM": "xterm"},
        cwd=folder,
        fresh=fresh,
    )
    os.close(terminal_end)
    try:
        yield Screen(controller, process)
    finally:
        process.kill()
        process.wait()
        os.close(controller)
