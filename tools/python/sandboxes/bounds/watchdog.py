"""Watches boxes from outside and ends those that exceed a limit; a box's `verdict` then states why, in words.

When the machine runs short of memory, the box that holds the most ends: that covers what no counter
attributes to a box. The thread is its own, so that a busy event loop does not delay it.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.python.sandboxes.bounds.host_memory import SHORT_OF_MEMORY, host_memory
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bounds.usage import Usage, measure, proportional, queued, sockets

INTERVAL = 0.1  # seconds between two checks of a box whose code runs
_SLOWER = 5  # an unused box is checked once in this many intervals
_RELIEF = 0.5  # seconds in which a killed box gives its memory back, before another is chosen
_PER_SOCKET = 320 * 1024  # at most, of the kernel's memory for one unix socket


@dataclass(slots=True)
class Watched:
    """One watched box. `otherwise` returns another exceeded limit that its sandbox knows, such as files."""

    root: int
    limits: SandboxLimits
    kill: Callable[[], None]
    otherwise: Callable[[], str | None]
    files: Callable[[], int] = lambda: 0  # the bytes of its files that are in memory
    spare: int = 0  # processes of the sandbox itself
    own_network: bool = True  # otherwise its sockets cannot be distinguished from the host's
    running: bool = True
    # At the last check, bytes of memory, also of the kernel.
    held: int = field(default=0, init=False)
    held_by_processes: int = field(default=0, init=False)
    verdict: str | None = field(default=None, init=False)
    waited: int = field(default=0, init=False)
    removed: bool = field(default=False, init=False)
    looking: threading.Lock = field(default_factory=threading.Lock, init=False)

    def due(self) -> bool:
        self.waited += 1
        if not self.running and self.waited < _SLOWER:
            return False
        self.waited = 0
        return True

    def look(self) -> None:
        """Checks the box, and ends it if it exceeds a limit."""
        with self.looking:
            if self.verdict is None and not self.removed and (verdict := self._judge()) is not None:
                self._end(verdict)

    def end(self, verdict: str) -> None:
        with self.looking:
            if self.verdict is None and not self.removed:
                self._end(verdict)

    def _end(self, verdict: str) -> None:
        self.verdict = verdict
        self.kill()

    def _judge(self) -> str | None:
        limits = self.limits
        usage = measure(self.root, limits.processes + self.spare)
        if usage.processes > limits.processes + self.spare:
            return f"it had more than {limits.processes} processes and threads"
        if usage.cpu_seconds > limits.cpu_seconds:
            return f"it had used {limits.cpu_seconds} s of processor time"
        count = sockets(self.root) if self.own_network else 0
        if count > limits.sockets:
            return f"it had more than {limits.sockets} sockets"
        if usage.descriptors > limits.descriptors:
            return f"it had more than {limits.descriptors} open files"
        return self._judge_memory(usage, count * _PER_SOCKET) or self.otherwise()

    def _judge_memory(self, usage: Usage, in_sockets: int) -> str | None:
        limits = self.limits
        in_network = queued(self.root) if self.own_network else 0
        used = usage.memory + in_network
        # The cheap sum comes first; pages shared after a fork are separated only when it matters.
        if used > limits.memory:
            used = proportional(usage.ids) + in_network
        if used > limits.memory:
            return limits.over_memory
        self.held_by_processes = used + in_sockets
        self.held = self.held_by_processes + self.files()
        return None


class Watchdog:
    """A thread that checks all boxes; it exists while there are any."""

    def __init__(self) -> None:
        self._boxes: list[Watched] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._relieved = 0.0

    def add(self, box: Watched) -> None:
        with self._changed:
            self._boxes.append(box)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="python-tool-watchdog", daemon=True)
                self._thread.start()

    def remove(self, box: Watched) -> None:
        """Stops watching. Afterwards no check is running, and the box's descriptors may be closed."""
        with box.looking:
            box.removed = True
        with self._changed:
            if box in self._boxes:
                self._boxes.remove(box)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait(INTERVAL)
                if not self._boxes:
                    self._thread = None
                    return
                living = [box for box in self._boxes if box.verdict is None]
            for box in living:
                if box.due():
                    box.look()
            self._relieve(living)

    def _relieve(self, living: list[Watched]) -> None:
        """Ends the box that holds the most if the machine is short of memory."""
        memory = host_memory()
        if memory is None or not memory.short or time.monotonic() < self._relieved + _RELIEF:
            return
        if heaviest := max(living, key=lambda box: box.held, default=None):
            heaviest.end(SHORT_OF_MEMORY)
            self._relieved = time.monotonic()
