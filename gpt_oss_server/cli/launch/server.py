"""The server that a client talks to, which runs already or is started for it. It must not know a client."""

import ctypes
import http.client
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpt_oss_server.cli.chat.remote import refusal, without_answer
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from tools.addresses import is_of_this_machine

_SECONDS = 5.0  # for an answer to whether it is ready
_PAUSE = 0.2  # between two such questions
_TAIL = 12  # lines of a log
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Started:
    """A server that this process has started. Ctrl-C does not reach it."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def last_lines(self) -> list[str]:
        lines = re.split(r"[\r\n]+", self.log.read_text(encoding="utf-8", errors="replace"))
        return [console.visible(line) for line in lines if line.strip()][-_TAIL:]

    @property
    def end(self) -> str | None:
        """How it ended, if it has: a sentence with the last lines of its log."""
        code = self.process.poll()
        return None if code is None else self.with_tail(f"The server ended with exit code {code}.")

    def with_tail(self, problem: str) -> str:
        lines = self.last_lines
        return "\n".join([problem, *(["Its last lines:"] if lines else []), *(f"  {line}" for line in lines)])

    def stop(self) -> None:
        """As Ctrl-C does: running responses may finish, and another Ctrl-C stops them."""
        signal.signal(signal.SIGINT, lambda *_: self.process.send_signal(signal.SIGINT))
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(1)
        except subprocess.TimeoutExpired:
            console.err("The server finishes what runs. Ctrl-C stops it immediately.")
            self.process.wait()
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def start(words: Sequence[str], log: Path, *, stays: bool) -> Started:
    """Unless it `stays`, it ends with this process also where that is killed (on Linux)."""
    command = [sys.executable, "-P", "-m", "gpt_oss_server", "serve", *words]
    own: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    if sys.platform == "linux" and not stays:
        libc = ctypes.CDLL(None)
        own["preexec_fn"] = lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    with log.open("wb") as output:
        return Started(subprocess.Popen(command, stdout=output, stderr=output, **own), log)


def why_not_ready(url: str) -> str:
    """What a server states that is not ready, else nothing. Raises OSError if none answers."""
    try:
        urllib.request.urlopen(f"{url}/ready", timeout=_SECONDS).close()
    except urllib.error.HTTPError as error:
        # Other programs have no such path, and serve once they answer.
        return refusal(error) if error.code == 503 else ""
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):
            raise
    except http.client.HTTPException:
        pass
    return ""  # the first request meets what is wrong


def reach_without_proxy(url: str) -> None:
    """Keeps requests to this machine from the proxy of the environment, for clients too."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or is_of_this_machine(host):
        for name in ("NO_PROXY", "no_proxy"):
            os.environ[name] = ",".join(filter(None, (os.environ.get(name), host)))


def answers(url: str) -> bool:
    with suppress(OSError):
        why_not_ready(url)
        return True
    return False


def wait_until_ready(url: str, name: str, seconds: float, started: Started | None = None) -> None:
    """Shows that it waits. Raises CommandLineError for a server that ends, or is late."""
    is_terminal, begun, passed = sys.stderr.isatty(), time.monotonic(), 0.0
    while (reason := _reason(url, started)) is not None:
        if passed > seconds:
            problem = (
                f"{name} is not ready after {seconds:g} s; --wait SECONDS waits longer. {reason}".rstrip()
            )
            if started is None:
                raise CommandLineError(problem)
            started.process.kill()  # nothing runs there yet, and one that still starts may miss a Ctrl-C
            raise CommandLineError(started.with_tail(problem))
        if is_terminal:
            details = started.last_lines[-1:] if started else [reason]
            line = "   ".join([f"{passed:.0f} s", f"Waiting for {name}", *details])
            console.err_in_place(line[: shutil.get_terminal_size().columns - 1])
        elif not passed:
            console.err(f"Waiting for {name} …")
        time.sleep(_PAUSE)
        passed = time.monotonic() - begun
    if is_terminal and passed:
        console.err_in_place("")


def _reason(url: str, started: Started | None) -> str | None:
    """Why the server is not ready; None if it is."""
    if started is not None and (end := started.end) is not None:
        raise CommandLineError(end)
    try:
        return why_not_ready(url) or None
    except OSError as error:
        if started is None:
            raise CommandLineError(without_answer(url, error)) from error
        return ""
