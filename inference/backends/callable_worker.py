"""A thread that runs generations one after the other.

Takes jobs, each with an outbox, and advances the first one that still has a reader until it is done. It must
not know what a job does: a job is anything with `advance()`. An exception in a job ends that job alone.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol, TypeVar

from inference.engine import EngineClosed, EngineFailed, InferenceError
from inference.failures import Failures
from inference.outbox import Outbox

ErrorType = TypeVar("ErrorType", bound=BaseException)

logger = logging.getLogger(__name__)


class Job(Protocol):
    @property
    def outbox(self) -> Outbox: ...

    def advance(self) -> bool:
        """Samples one token; returns false when the job is done."""
        ...


class Worker:
    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._arrived: list[Job] = []
        self._jobs: list[Job] = []
        self._closing = False
        self.failures = Failures()  # of single tokens
        # A daemon, so that a process that ends does not wait for a model.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def active(self) -> int:
        """Jobs that hold memory or wait for it."""
        with self._changed:
            return len(self._arrived) + len(self._jobs)

    def submit(self, job: Job) -> None:
        with self._changed:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            if not self._thread.is_alive():
                self._thread.start()
            self._arrived.append(job)
            self._changed.notify()

    def wake(self) -> None:
        """Signals that a job may continue, or has lost its reader."""
        with self._changed:
            self._changed.notify()

    def close(self) -> None:
        """Ends every job with `EngineClosed` and waits for the current round."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while self._wait():
            self._round()
        self._end_all()

    def _round(self) -> None:
        # A method of its own: no variable keeps the last job (its cache) alive while the thread waits.
        for job in self._jobs[:1]:
            # The reader may leave in the middle of a round, or the engine be closed.
            if self._closing:
                return
            if not (job.outbox.is_full or job.outbox.abandoned or self._take_turn(job)):
                self._drop(job)
        self._drop_abandoned()

    def _wait(self) -> bool:
        """Waits until a job can advance; returns false when the worker closes."""
        with self._changed:
            while not self._closing:
                self._jobs += self._arrived
                self._arrived.clear()
                if any(not job.outbox.is_full for job in self._jobs[:1]):
                    return True
                if any(job.outbox.abandoned for job in self._jobs):
                    return True
                self._changed.wait()
            return False

    def _take_turn(self, job: Job) -> bool:
        try:
            goes_on = job.advance()
        except InferenceError as error:
            self.failures.failed()
            job.outbox.end(_without_frames(error))
        except BaseException as error:
            # BaseException: a user's function that calls sys.exit() must end neither this thread nor other
            # generations. Only the log has the text: clients read the error, and the text may hold secrets.
            self.failures.failed()
            logger.exception("A generation failed.")
            failure = EngineFailed(f"The generation failed with {type(error).__name__}; the log has more.")
            failure.__cause__ = _without_frames(error)
            job.outbox.end(failure)
        else:
            self.failures.succeeded()
            return goes_on
        return False

    def _drop(self, job: Job) -> None:
        with self._changed:
            self._jobs.remove(job)

    def _drop_abandoned(self) -> None:
        with self._changed:
            self._jobs = [job for job in self._jobs if not job.outbox.abandoned]

    def _end_all(self) -> None:
        with self._changed:
            ended = self._jobs + self._arrived
            self._jobs, self._arrived = [], []
        for job in ended:
            job.outbox.end(EngineClosed("The engine was closed while it generated."))


def _without_frames(error: ErrorType) -> ErrorType:
    """The frames of a traceback keep the job and its cache alive; the log already has them."""
    return error.with_traceback(None)
