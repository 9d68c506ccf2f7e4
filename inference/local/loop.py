"""The engine's thread: plans a step, has it run, hands out what was sampled, and again.

In go sequences from the event loop, out go their tokens through their outboxes. Which sequence takes part is
the scheduler's, how a step is computed the runner's. A step that fails as a whole is repeated sequence by
sequence, so that only the one that fails alone ends with the error.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence as Listed

from inference.engine import EngineBusy, EngineClosed, Finish, InferenceError
from inference.local.scheduling.blocks import IntegrityError
from inference.local.scheduling.scheduler import Scheduler, Share
from inference.local.scheduling.sequence import Sequence
from inference.local.scheduling.step import Flight, Outcome, Runner, failure_of

# Told to clients that are turned away: about the time in which one of a full queue's generations ends.
RETRY_AFTER = 2.0
# Seconds without anything to do before the blocks are counted: the next request must not wait for that.
BEFORE_CHECK = 0.05

logger = logging.getLogger(__name__)


class Loop:
    def __init__(self, runner: Runner, scheduler: Scheduler, name: str) -> None:
        self._runner, self._scheduler = runner, scheduler
        self._changed = threading.Condition()
        self._arrived: list[Sequence] = []
        self._flights: deque[tuple[list[Share], Flight]] = deque()
        self._here = 0
        self._closing = False
        self._news = False  # since the last plan: an arrival, a reader that reads again or has left
        # A daemon: a process that ends must not wait for a model.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # The event loop -----------------------------------------------------------------------------------

    @property
    def active(self) -> int:
        """Sequences that hold memory or wait for it."""
        with self._changed:
            return self._here

    def check_room(self) -> None:
        """Raises `EngineBusy` where one more would wait behind as many as may."""
        with self._changed:
            self._check_room()

    def submit(self, sequence: Sequence) -> None:
        with self._changed:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            self._check_room()
            if not self._thread.is_alive():
                self._thread.start()
            self._arrived.append(sequence)
            self._here += 1
            self._wake()

    def wake(self) -> None:
        """A sequence may go on, or is no longer wanted."""
        with self._changed:
            self._wake()

    def close(self) -> None:
        """Ends every sequence with `EngineClosed` and waits for the step under way."""
        with self._changed:
            self._closing = True
            self._wake()
        if self._thread.is_alive():
            self._thread.join()

    def _wake(self) -> None:
        self._news = True
        self._changed.notify()

    def _check_room(self) -> None:
        limits = self._scheduler.limits
        if self._here >= limits.max_concurrent + limits.max_waiting:
            raise EngineBusy(self._here - limits.max_concurrent, RETRY_AFTER)

    # The engine's thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while self.take_in_news():
            try:
                if not self.turn():
                    self._rest()
            except Exception as error:
                # A defect of the scheduler's: nobody may wait for ever on a thread that is gone.
                self._begin_anew(failure_of(error))
        self._end_all(EngineClosed("The engine was closed while it generated."))
        self._runner.close()

    def _begin_anew(self, failure: InferenceError) -> None:
        self._flights.clear()
        self._end_all(failure)

    def turn(self) -> bool:
        """One step launched, and those settled that are due; false when nobody can go on."""
        shares = self._scheduler.plan()
        if shares:
            self._launch(shares)
        elif not self._flights:
            return False
        while self._flights and (len(self._flights) > self._runner.ahead or not shares):
            self._settle()
        return True

    def take_in_news(self) -> bool:
        """Who came and who left; false when the engine closes."""
        with self._changed:
            if self._closing:
                return False
            self._news = False
            arrived, self._arrived = self._arrived, []
        for sequence in arrived:
            self._scheduler.add(sequence)
        for sequence in [*self._scheduler.running, *self._scheduler.waiting]:
            if sequence.outbox.abandoned:
                self._remove(sequence)
        return True

    def _rest(self) -> None:
        """Nobody can go on: until there is news. After a moment without it the books are checked."""
        with self._changed:
            if self._changed.wait_for(lambda: self._news, BEFORE_CHECK):
                return
        if not len(self._scheduler):
            self._check_books()
        with self._changed:
            self._changed.wait_for(lambda: self._news)

    def _check_books(self) -> None:
        """Nobody is here, so nothing may be held."""
        try:
            self._scheduler.cache.check_integrity([])
        except IntegrityError:
            # A defect of ours, which must not be a client's: the cache is lost, the engine goes on.
            logger.exception("The cache of prompts was not in order, and begins anew.")
            self._scheduler.cache.reset()

    def _launch(self, shares: list[Share]) -> None:
        try:
            self._flights.append((shares, self._runner.launch([share.part for share in shares])))
        except Exception as error:
            # All there is: a defect in the model's code must not end the thread, nor others' generations.
            while self._flights:
                self._settle()
            self._run_apart(shares, error)

    def _settle(self) -> None:
        shares, flight = self._flights.popleft()
        try:
            outcomes = flight.outcomes()
        except Exception as error:
            # As above. What was launched behind this built on it.
            later = [share for others, _ in self._flights for share in others]
            self._flights.clear()
            self._fail([*shares, *later], error)
            return
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
                self._apply(share, outcome)

    def _fail(self, shares: Listed[Share], error: Exception) -> None:
        failure = failure_of(error)
        for share in shares:
            if not share.sequence.ended:
                self._end(share.sequence, failure)

    def _apply(self, share: Share, outcome: Outcome) -> None:
        sequence = share.sequence
        accepted = (
            sum(
                found.token == draft
                for found, draft in zip(outcome.sampled, share.part.tokens[-share.drafts :], strict=False)
            )
            if share.drafts
            else 0
        )
        self._scheduler.settle(share, accepted)
        if sequence.ended:
            return
        sequence.take_scores(share.part.start, outcome.scores)
        for found in outcome.sampled:
            sequence.tokens.append(found.token)
            finish = sequence.finish_of(found.token)
            if finish is not None:
                self._end(sequence, None)
            sequence.outbox.put(found.token, found.logprob, finish)
            if finish is not None:
                return
        if outcome.error is not None:
            self._end(sequence, outcome.error)
        elif sequence.limit <= 0 and sequence.computed == len(sequence.tokens):
            self._remove(sequence)  # its prompt was to be read, and is kept
            sequence.outbox.end(Finish.LENGTH)

    def _end(self, sequence: Sequence, error: InferenceError | None) -> None:
        self._remove(sequence)
        if error is not None:
            # Without its frames: they hold tensors as long as somebody holds the error.
            sequence.outbox.end(error.with_traceback(None))

    def _remove(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence)
        with self._changed:
            self._here -= 1

    def _end_all(self, why: InferenceError) -> None:
        held = self._scheduler.clear()
        with self._changed:
            ended = held + self._arrived
            self._arrived = []
            self._here = 0
        for sequence in ended:
            sequence.outbox.end(why)
