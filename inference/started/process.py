"""A program that serves a model on a private port: started, watched, started again when it dies, ended.

Takes the words of its command. `start` waits until it can generate; then a thread watches it. What it prints
goes to a file or nowhere, but for the last lines, which errors show.
"""

import logging
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Sequence
from typing import BinaryIO

from inference.engine import CheckpointError, EngineFailed
from inference.options import EngineOptions
from inference.paths import UnknownHome, expanded_path
from inference.progress import ProgressBar
from inference.started import minder
from inference.started.programs import Program, further

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
_LOOK = 0.05  # seconds between looks at a program that starts
_HEALTH_SECONDS = 5.0  # between looks at one that runs, and for its answer
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0  # seconds before it is started again
_PATIENT = 3  # starts in a row that may fail until requests no longer wait
_LINES = 6  # of the end of its log, in an error
_KEPT = 40  # lines
_SHARE = re.compile(r"(\d{1,3})%")
_DOTS = re.compile(r"\.{4,}")  # llama.cpp prints one for each hundredth of a model
_NO_FLAG = re.compile(r"(?:invalid|unrecognized|unknown) arguments?:? *(--?[\w-]+)")
_NO_MEMORY = re.compile(
    r"out of memory|failed to (?:allocate|fit)|bad_alloc|(?:[Cc]annot|unable to) allocate|not enough memory"
)


class StartedProgram:
    """Implements `inference.remote.replicas.Keeper`."""

    def __init__(self, program: Program, command: Sequence[str], health: str, options: EngineOptions) -> None:
        self.program, self._command, self._health, self._options = program, command, health, options
        self.key = secrets.token_hex(16)
        self.moved: Callable[[str], None] = lambda url: None  # learns its address after each start
        self.url = ""
        self.problem: str | None = None  # why it could not be started again, several times
        self.is_starting = False
        self._log_file = _opened(options.engine_log)
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._share, self._heard = 0, 0.0

    def start(self, progress: bool | None = None) -> None:
        """Raises `InferenceError` with a sentence if it does not come to serve."""
        port = _free_port()
        self.url, self._share, self._heard = f"http://{HOST}:{port}", 0, time.monotonic()
        self._lines.clear()
        words = [*self._command, "--host", HOST, "--port", str(port)]
        words += ["--api-key", self.key] if self.program.key is None else []
        variables = {} if self.program.key is None else {self.program.key: self.key}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", minder.__file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **variables},
            start_new_session=True,  # Ctrl-C in a terminal is for the server, which lets answers finish
        )
        reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        reader.start()
        try:
            self._until_it_serves(self._process, progress)
        except BaseException:
            self._end_process()
            raise
        finally:
            if self._process.poll() is not None:
                reader.join(1.0)

    def watch(self) -> None:
        threading.Thread(target=self._keep, name=f"{self.program.kind} watch", daemon=True).start()

    def close(self) -> None:
        self._ending.set()
        self._end_process()
        if self._log_file is not None:
            self._log_file.close()

    def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # the minder ends it then
        try:
            process.wait(minder.GRACE + 2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _until_it_serves(self, process: "subprocess.Popen[bytes]", progress: bool | None) -> None:
        with ProgressBar(f"Starting {self.program.title}", 100, show=progress) as bar:
            shown = 0
            while not self._answers(1.0):
                if process.poll() is not None:
                    time.sleep(_LOOK)  # for its last lines
                    raise EngineFailed(self._why_it_ended(process.returncode))
                if self._ending.is_set():
                    raise EngineFailed("The server ends.")
                silent = time.monotonic() - self._heard
                if silent > self._options.engine_idle_timeout:
                    raise EngineFailed(
                        f"{self.program.title} printed nothing for {silent:.0f} s.{self._last()}"
                    )
                bar.advance(self._share - shown)
                shown = self._share
                time.sleep(_LOOK)
            bar.advance(100 - shown)

    def _answers(self, seconds: float) -> bool:
        try:
            with urllib.request.urlopen(self.url + self._health, timeout=seconds) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _keep(self) -> None:
        """The thread that starts it again until the server ends."""
        while not self._ending.is_set():
            assert self._process is not None
            why = self._until_it_ends(self._process)
            failed = 0
            self.is_starting = True
            while not self._ending.is_set():
                pause = min(_FIRST_PAUSE * 2**failed, _LONGEST_PAUSE)
                _log.warning("%s It is started again in %g s.", why, pause)
                self._ending.wait(pause)
                try:
                    self.start(progress=False)
                except EngineFailed as error:
                    why, failed = str(error), failed + 1
                    self.problem = why if failed >= _PATIENT else None
                else:
                    _log.warning("%s serves again.", self.program.title)
                    self.moved(self.url)
                    self.problem, self.is_starting = None, False
                    break

    def _until_it_ends(self, process: "subprocess.Popen[bytes]") -> str:
        answered = time.monotonic()
        while True:
            try:
                code = process.wait(_HEALTH_SECONDS)
                self._end_process()
                return f"{self.program.title} ended {_with(code)}.{self._last()}"
            except subprocess.TimeoutExpired:
                if self._answers(_HEALTH_SECONDS):
                    answered = time.monotonic()
            silent = time.monotonic() - answered
            if silent > self._options.engine_idle_timeout:
                self._end_process()
                return f"{self.program.title} did not answer for {silent:.0f} s, and was ended."

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        rest = ""
        with process.stdout as output:
            while piece := os.read(output.fileno(), 65_536):
                self._heard = time.monotonic()
                if self._log_file is not None and not self._log_file.closed:
                    self._log_file.write(piece)
                    self._log_file.flush()
                *lines, rest = re.split(r"[\r\n]+", rest + piece.decode("utf-8", errors="replace"))
                self._lines.extend(line for line in lines if line.strip(" ."))
                self._notice([*lines, rest])
        if rest.strip(" ."):
            self._lines.append(rest)

    def _notice(self, lines: Sequence[str]) -> None:
        for line in lines:
            shares = [int(found) for found in _SHARE.findall(line)]
            shares += [len(dots) for dots in _DOTS.findall(line)]
            self._share = max([self._share, *(share for share in shares if share <= 100)])

    def _why_it_ended(self, code: int) -> str:
        title, log, advice = self.program.title, "\n".join(self._lines), ""
        update = f"update it. {self.program.how_to_install()}"
        if flag := _NO_FLAG.search(log):
            is_theirs = flag[1] in further(self._options)
            remedy = "correct --engine-args." if is_theirs else f"it is too old; {update}"
            advice = f" It has no flag {flag[1]}: {remedy}"
        elif "unknown model architecture: 'gpt-oss'" in log:
            advice = f" It is too old for gpt-oss; {update}"
        elif _NO_MEMORY.search(log):
            advice = (
                " This machine has too little memory for it: choose a smaller --context or --max-concurrent."
            )
        return f"{title} ended {_with(code)} before it could serve.{advice}{self._last()}"

    def _last(self) -> str:
        lines = "".join(f"\n  {line[:200]}" for line in list(self._lines)[-_LINES:])
        return f" Its last lines:{lines}" if lines else ""


def _with(code: int) -> str:
    """The minder reports signals as shells do, and may end by one, too."""
    signal = -code if code < 0 else code - 128
    return f"by signal {signal}" if signal > 0 else f"with code {code}"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        return int(free.getsockname()[1])


def _opened(path: str | None) -> BinaryIO | None:
    if path is None:
        return None
    try:
        return expanded_path(path, "file").open("ab")
    except (OSError, UnknownHome) as error:
        raise CheckpointError(f"--engine-log {path} cannot be written: {error}.") from error
