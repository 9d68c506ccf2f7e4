"""What the user writes: messages of one line or several, and answers to questions.

Reads a terminal with editing and a history, or piped lines. Three quotes at the start of a line begin a
message of several lines, three at the end of one end it; lines that are pasted together are one message.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpt_oss_server.cli.chat.history import History
from gpt_oss_server.cli.terminal import console

QUOTES = '"""'
_MORE = "... "
_PASTED_WITHIN = 0.05  # seconds in which a pasted line follows another; nobody types that fast


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

    def ask(self, question: str) -> str | None:
        """The answer to a question of the chat's own; None if there is none."""
        if self.interactive:
            try:
                return input(question)
            except EOFError:
                console.out()
                return None
        console.out(question)
        return sys.stdin.readline() or None

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
