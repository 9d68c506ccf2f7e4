"""The life of a run, the same for every API: it is observed, counted, noted in the log and settled.

Takes the work of a request and what the run reports of itself. An API's run generates within `running`, with
what may fail within `failing`, so that its last events can follow either end. It must not know an API.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.caller.record import note_answer
from gpt_oss_server.errors import ApiError, from_exception
from gpt_oss_server.runs.observed import Api, Outcome, outcome
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.usage import Usage
from gpt_oss_server.runs.work import Work
from gpt_oss_server.turns.debug import log_turn
from gpt_oss_server.turns.prompt import SamplingRequest, ignored_fields
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import Finish


class Life:
    def __init__(
        self,
        served: Served,
        work: Work,
        api: Api,
        title: str,
        run_id: str,
        request: SamplingRequest,
        *,
        usage: Callable[[], Usage],
        finish: Callable[[], str],
        spending: Spending | None = None,
        outlives: bool = False,
    ) -> None:
        """`title` and `finish` are words for the log; `spending` holds the tokens that were reserved."""
        self.id = run_id
        self.model = request.model or work.model.name
        # The request's fields without effect on this engine.
        self.ignored = ignored_fields(request, work.model.info)
        self.error: ApiError | None = None
        self.observed = served.observed(api, run_id, request.model, work, outlives=outlives)
        self.observed.usage = usage
        self._title = f"{title} {run_id}"
        self._usage = usage
        self._finish = finish
        self._spending = spending or Spending()

    @contextmanager
    def running(self, *, notes: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """The time in which the run generates. If it `notes` its end here, the log gets it."""
        with self.observed.running():
            try:
                yield
            finally:
                if notes():
                    self.note()
                self.settle()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """An error in the block ends it, and is the error of the run."""
        try:
            yield
        except Exception as error:
            self.error = from_exception(error, self._title)

    def outcome(self, finish: Finish | None) -> Outcome:
        return outcome(finish, self.error)

    def note(self) -> None:
        """Notes the end of the answer in the log."""
        finish, usage = "failed" if self.error is not None else self._finish(), self._usage()
        note_answer(
            response_id=self.id,
            model=self.model,
            finish=finish,
            input_tokens=usage.input,
            cached_tokens=usage.cached,
            output_tokens=usage.output,
            error=self.error,
        )

    def settle(self) -> None:
        self._spending.settle(self._usage().total)

    def begins(self, turn: Transcript) -> None:
        self.observed.add(turn)

    def ends(self, turn: Transcript, finish: Finish | None) -> None:
        """A turn has ended, with the outcome of its finish and the run's error."""
        self.observed.turn_ended(self.outcome(finish), turn.departures, self.error)
        self.log(turn)

    def log(self, turn: Transcript, part: str = "") -> None:
        """`part` names a turn that is not the answer's."""
        log_turn(f"{self.id}{part}", turn)
