"""What the user writes: answers to questions, and messages of one line or several, pasted or in quotes."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpt_oss_server.cli.terminal import console

QUOTES = '"""'
_MORE = "... "
_PASTED_WITHIN = 0.05  # seconds in which a pasted line follows another; no user types that fast
_MOST_MESSAGES = 1000  # that the history keeps
_LONGEST_MESSAGE = 20_000  # characters; longer ones are not worth recalling


class Reader:
    def __init__(self, prompt: str, history: History | None = None) -> None:
        self.interactive = sys.stdin.isatty()
        self._history = history
        edits = self.interactive and _edits_lines()
        self._prompt = console.uncounted(prompt) if edits else prompt
        if edits and history is not None:
            history.load()

    def read(self) -> str | None:
        """The next message, or None when the user quits."""
        message = self._typed() if self.interactive else self._piped()
        if message and self._history is not None and self.interactive:
            self._history.add(message)
        return message

    def confirms(self, question: str) -> bool:
        """Whether the answer to a question of the chat's own is yes."""
        if not self.interactive:
            console.out(question)
            return _is_yes(sys.stdin.readline())
        try:
            return _is_yes(input(question))
        except EOFError:
            console.out()
            return False

    def _typed(self) -> str | None:
        while True:
            try:
                message = input(self._prompt)
                for line in _pasted():
                    message += "\n" + line
                return self._quoted(message, lambda: input(_MORE))
            except EOFError:
                console.out()
                return None
            except KeyboardInterrupt:
                console.out("\n(Ctrl-D quits)")  # below what is typed, which readline leaves there

    def _piped(self) -> str | None:
        line = sys.stdin.readline()
        if not line:
            return None

        def following() -> str:
            further = sys.stdin.readline()
            if not further:
                raise EOFError
            return further.rstrip("\n")

        return self._quoted(line.rstrip("\n"), following)

    def _quoted(self, first: str, following: Callable[[], str]) -> str:
        if not first.lstrip().startswith(QUOTES):
            return first
        lines = first.lstrip().removeprefix(QUOTES)
        while not lines.rstrip().endswith(QUOTES):
            try:
                lines += "\n" + following()
            except EOFError:  # the end of the input ends the message too
                return lines.strip("\n")
        return lines.rstrip().removesuffix(QUOTES).strip("\n")


def _is_yes(answer: str) -> bool:
    return answer.strip().lower() in ("y", "yes")


def _pasted() -> Iterator[str]:
    """Lines that arrived with the one just read, from a terminal that does not mark what is pasted."""
    if sys.platform == "win32":
        return
    while select.select([sys.stdin], [], [], _PASTED_WITHIN)[0]:
        try:
            yield input()
        except EOFError:
            return


def _edits_lines() -> bool:
    """Whether lines have editing and a history, which needs a Python built with readline."""
    try:
        import readline
    except ImportError:
        return False
    if "libedit" not in (readline.__doc__ or ""):
        readline.parse_and_bind("set enable-bracketed-paste on")
    readline.set_auto_history(False)  # the chat adds whole messages
    return True


@contextmanager
def typing_ignored() -> Iterator[None]:
    """Keys other than Ctrl-C neither appear in an answer nor become the next message."""
    try:
        import termios
    except ImportError:  # not on Windows
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    quiet = list(before)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcflush(terminal, termios.TCIFLUSH)
        termios.tcsetattr(terminal, termios.TCSANOW, before)


class History:
    """The messages of earlier chats, for the arrow keys: readline's own file, for its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> None:
        """Gives the messages to readline. A file that cannot be read counts as empty."""
        import readline

        with suppress(OSError):
            readline.read_history_file(self._path)

    def add(self, message: str) -> None:
        """Recalls the message from now on. A folder that cannot be written costs only the memory."""
        try:
            import readline
        except ImportError:
            return
        readline.add_history(message)
        if "\n" in message or len(message) > _LONGEST_MESSAGE or "libedit" in (readline.__doc__ or ""):
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600))
            readline.set_history_length(_MOST_MESSAGES)
            readline.append_history_file(1, self._path)
