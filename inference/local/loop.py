"""The engine's thread: repeatedly plans a step, launches it and hands out the sampled tokens.

The scheduler decides which sequences take part, the runner computes the step. A step that fails as a whole is
repeated sequence by sequence, so that only the faulty one ends with the error.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence as Listed

from inference.engine import EngineBusy, EngineClosed, EngineFailed, Finish, InferenceError
from inference.failures import Failures, as_failure
from inference.local.scheduling.block_pool import IntegrityError
from inference.local.scheduling.scheduler import Scheduler, Share
from inference.local.scheduling.sequence import Sequence
from inference.local.scheduling.step import Flight, Outcome, Runner, right_drafts

# Seconds, for clients that are refused: about the time in which one generation of a full queue ends.
RETRY_AFTER = 2.0
# Seconds of idleness before the blocks are checked: the next request must not wait for the check.
BEFORE_CHECK = 0.05

logger = logging.getLogger(__name__)


class Loop:
    def __init__(self, runner: Runner, scheduler: Scheduler, name: str) -> None:
        self._runner, self._scheduler = runner, scheduler
        self._changed = threading.Condition()
        self._arrived: list[Sequence] = []
        self._flights: deque[tuple[list[Share], Flight]] = deque()
        self._active = 0
        self._closing = False
        self._news = False  # since the last plan: an arrival, or a reader that resumed or left
        self._broken: str | None = None  # why no step can succeed any more
        self._started = False
        self.failures = Failures()  # of whole steps
        # A daemon, so that a process that ends does not wait for a model.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # The event loop -----------------------------------------------------------------------------------

    @property
    def active(self) -> int:
        """Sequences that hold memory or wait for it."""
        with self._changed:
            return self._active

    @property
    def broken(self) -> str | None:
        """Why no step of this process can succeed any more, as a sentence."""
        if self._broken is None and self._started and not self._closing and not self._thread.is_alive():
            return "The engine's thread has ended."
        return self._broken

    def check_room(self) -> None:
        """Raises `EngineBusy` if the queue is full."""
        limits = self._scheduler.limits
        with self._changed:
            if self._active >= limits.max_concurrent + limits.max_waiting:
                raise EngineBusy(self._active - limits.max_concurrent, RETRY_AFTER)

    def submit(self, sequence: Sequence) -> None:
        with self._changed:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            if self.broken is not None:
                raise EngineFailed(self.broken)
            self.check_room()
            if not self._started:
                self._thread.start()
                self._started = True
            self._arrived.append(sequence)
            self._active += 1
            self.wake()

    def wake(self) -> None:
        """Signals that a sequence may continue, or has lost its reader."""
        with self._changed:
            self._news = True
            self._changed.notify()

    def close(self) -> None:
        """Ends every sequence with `EngineClosed` and waits for the current step."""
        with self._changed:
            self._closing = True
            self.wake()
        if self._thread.is_alive():
            self._thread.join()

    # The engine's thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self.take_in_news():
                try:
                    if not self.turn():
                        self._rest()
                except Exception as error:
                    # A defect in the scheduler: no reader may wait for ever on a thread that has died.
                    self.failures.failed()
                    self._reset(as_failure(error))
        except BaseException as error:  # such as SystemExit in the code of a model
            self._broken = f"The engine's thread ended with {type(error).__name__}; the log has more."
            self._reset(as_failure(error))
        self._end_all(EngineClosed("The engine was closed while it generated."))
        self._runner.close()

    def _reset(self, failure: InferenceError) -> None:
        self._flights.clear()
        self._end_all(failure)

    def turn(self) -> bool:
        """Launches one step and settles those that are due; returns false if no sequence can continue."""
        shares = self._scheduler.plan()
        if shares:
            self._launch(shares)
        elif not self._flights:
            return False
        while self._flights and (len(self._flights) > self._runner.ahead or not shares):
            self._settle()
        return True

    def take_in_news(self) -> bool:
        """Adds sequences that arrived, removes those whose readers left; returns false on closing."""
        with self._changed:
            if self._closing:
                return False
            self._news = False
            arrived, self._arrived = self._arrived, []
        self._scheduler.cache.take_in_fetched()
        for sequence in arrived:
            self._scheduler.add(sequence)
        for sequence in [*self._scheduler.running, *self._scheduler.waiting]:
            if sequence.outbox.abandoned:
                self._remove(sequence)
        return True

    def _rest(self) -> None:
        """Waits until there is news. After a moment, checks the blocks."""
        if self._news_within(BEFORE_CHECK):
            return
        if not len(self._scheduler):
            self._check_blocks()
        self._news_within(None)

    def _news_within(self, seconds: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._news, seconds)

    def _check_blocks(self) -> None:
        """Without any sequence, no block may be held."""
        try:
            self._scheduler.cache.check_integrity([])
        except IntegrityError:
            # A defect of this program must not become a client's: drop the cache and continue.
            logger.exception("The prefix cache was inconsistent and has been reset.")
            self._scheduler.cache.reset()

    def _launch(self, shares: list[Share]) -> None:
        try:
            self._flights.append((shares, self._runner.launch([share.part for share in shares])))
        except Exception as error:
            # Any Exception: a defect in the model's code must not end the thread or other generations.
            self._scheduler.counts.failed_steps += 1
            while self._flights:
                self._settle()
            self._run_apart(shares, error)

    def _settle(self) -> None:
        shares, flight = self._flights.popleft()
        try:
            outcomes = flight.outcomes()
        except Exception as error:
            # As above. Steps launched after this one built on it.
            self._scheduler.counts.failed_steps += 1
            later = [share for others, _ in self._flights for share in others]
            self._flights.clear()
            self._fail([*shares, *later], error)
            return
        self.failures.succeeded()
        for share, outcome in zip(shares, outcomes, strict=True):
            self._apply(share, outcome)

    def _run_apart(self, shares: list[Share], error: Exception) -> None:
        if len(shares) == 1:
            self._fail(shares, error)
            return
        for share in shares:
            try:
                outcome = self._runner.launch([share.part]).outcomes()[0]
            except Exception as alone:
                self._fail([share], alone)
            else:
                self.failures.succeeded()
                self._apply(share, outcome)

    def _fail(self, shares: Listed[Share], error: Exception) -> None:
        failure = as_failure(error)
        self.failures.failed()
        self._broken = self._broken or self._runner.problem()
        for share in shares:
            if not share.sequence.ended:
                self._end(share.sequence, failure)

    def _apply(self, share: Share, outcome: Outcome) -> None:
        sequence = share.sequence
        self._scheduler.settle(share, right_drafts(share.part, outcome))
        if sequence.ended:
            return
        if sequence.drafter is not None:
            sequence.drafter.take(outcome.guesses)
        sequence.take_scores(share.part.start, outcome.scores)
        for sample in outcome.sampled:
            sequence.tokens.append(sample.token)
            finish = sequence.finish_with(sample.token)
            if finish is not None:
                self._end(sequence, None)
            sequence.outbox.put(sample.token, sample.logprob, finish)
            if finish is not None:
                return
        if outcome.error is not None:
            self._end(sequence, outcome.error)
        elif sequence.limit <= 0 and sequence.computed == len(sequence.tokens):
            self._remove(sequence)  # the request was only to read the prompt, which stays cached
            sequence.outbox.end(Finish.LENGTH)

    def _end(self, sequence: Sequence, error: InferenceError | None) -> None:
        self._remove(sequence)
        if error is not None:
            # Without its frames: they keep tensors alive as long as the error lives.
            sequence.outbox.end(error.with_traceback(None))

    def _remove(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        with self._changed:
            self._active -= 1

    def _end_all(self, why: InferenceError) -> None:
        held = self._scheduler.clear()
        with self._changed:
            ended = held + self._arrived
            self._arrived = []
            self._active = 0
        for sequence in ended:
            sequence.outbox.end(why)
