"""Background responses that outlive their process: recorded while they run, and built again elsewhere.

Takes the runs that no process holds any more. Builds each again, lets it repeat what it did before, silently,
and drives it on; one that cannot be built, or that was tried too often, ends as failed. Shows that this
process lives, and the current state of runs of other processes. Without shared runs (`Stores.claims`), it
does nothing.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic_core import from_json, to_json

from gpt_oss_server.apis.responses.past import Past, past_from
from gpt_oss_server.apis.responses.prepare import PreparedResponse, bind
from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.apis.responses.storage import announce
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import ApiError, RunInterrupted, StoreUnavailable
from gpt_oss_server.http.sse import encode
from gpt_oss_server.ids import SeededIds
from gpt_oss_server.runs.background.runs import BackgroundRuns
from gpt_oss_server.runs.background.tape import Tape, TapedEngine
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.work import Work
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.chain import Position
from gpt_oss_server.stores.events import Claimed, Continuation
from gpt_oss_server.stores.kinds.keep import Keep
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.events import EventLogs

_CANCEL_SECONDS = 10.0  # that another server has to end a run
_ASK_SECONDS = 0.05  # between questions whether it has
_LOOK_SECONDS = 0.5  # between looks for runs to continue or to cancel
_UNFINISHED = ("queued", "in_progress")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What another process needs to continue a run with its tape: all that preparing it took in."""

    seed: str
    request: dict[str, Any]  # with its references resolved
    response: dict[str, Any]  # as it was when the run began
    items: list[dict[str, Any]]  # the request's input
    results: dict[str, str]  # of the calls that the input references
    session: str
    position: Position | None
    prompt: list[int]
    caller: dict[str, Any] = field(default_factory=dict)  # with the limits and tools of its key

    @classmethod
    def read(cls, content: bytes) -> Blueprint:
        return cls(**from_json(content))

    async def past(self, keep: Keep) -> Past:
        history = await keep.responses.history_at(self.position, self.session)
        return replace(past_from(history), results=self.results)

    def snapshot(self, events: list[dict[str, Any]]) -> StoredResponse:
        """The current response, from the events that are logged so far. They may include the end."""
        reported = [event["response"] for event in events if "response" in event]
        if reported and reported[-1]["status"] not in _UNFINISHED:
            return StoredResponse(reported[-1], tuple(self.items))
        response = dict(self.response)
        response["output"] = [e["item"] for e in events if e["type"] == "response.output_item.done"]
        status = (reported or [response])[-1]["status"]
        return StoredResponse({**response, "status": status}, tuple(self.items))


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that is recorded from its beginning."""

    seed: str
    tape: Tape
    work: Work

    def continuation(self, run: Run, prepared: PreparedResponse) -> Continuation:
        past = prepared.past
        blueprint = Blueprint(
            seed=self.seed,
            request=prepared.request.model_dump(mode="json", exclude_unset=True),
            response=run.response,
            items=list(prepared.items),
            results=dict(past.results),
            session=past.session,
            position=past.position,
            prompt=list(prepared.prompt),
            caller=run.caller.stored,
        )
        return Continuation(to_json(asdict(blueprint)), past.position)


class Continuing:
    def __init__(self, served: Served, background: BackgroundRuns[Run]) -> None:
        self._served = served
        self._background = background
        self._claims = served.stores.claims
        self._claims_more = True
        self._renewed = 0.0
        self._stopping: set[asyncio.Task[None]] = set()
        problem = "Background responses of other servers cannot be continued"
        self._repeated = Repeated(self.look, _LOOK_SECONDS, problem)

    def start(self) -> None:
        """Call it in the event loop."""
        if self._claims is not None:
            self._repeated.start()

    async def look(self) -> None:
        """Renews the leases, cancels what should be, and continues every run that it can claim, if it may."""
        if (claims := self._claims) is None:
            return
        now = asyncio.get_running_loop().time()
        if not self._renewed or now - self._renewed > self._served.settings.background_lease / 3:
            await claims.renew()
            self._renewed = now
        for run_id in await claims.cancelled():
            task = asyncio.create_task(self._background.stop_here(run_id))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        while self._claims_more and self._background.has_room and (claimed := await claims.claim()):
            await self._continue(claimed, claims)

    async def drained(self) -> None:
        """Takes over no more runs, and returns when those of this process have ended."""
        self._claims_more = False
        await self._background.ended()

    async def end_late_work(self) -> int:
        """Leaves runs to others, and ends all other work: each response gets its terminal event.

        Returns the number of background runs that others cannot continue.
        """
        await self.close()
        left = self._background.count
        await self._served.stop()
        return left

    async def close(self) -> None:
        """Takes over no more runs, and leaves those of this process to others."""
        await self._repeated.close()
        await self._background.hand_over()

    def new_recording(self, work: Work) -> Recording | None:
        """A recording of a new run; None if nothing could continue it."""
        if self._claims is None:
            return None
        seed, tape = secrets.token_hex(16), Tape()
        return Recording(seed, tape, _recorded(work, seed, tape))

    async def build(self, claimed: Claimed) -> Run:
        """The run again, as its request and its tape have it."""
        served, blueprint = self._served, Blueprint.read(claimed.request)
        caller = Caller.again(claimed.owner, blueprint.caller)
        work = served.work(caller, blueprint.response["model"])
        stored = await work.keep.responses.get(claimed.run_id)
        tape = Tape(claimed.records, at_end=self._at_end(claimed, stored))
        work = _recorded(work, blueprint.seed, tape)
        began = float(blueprint.response["created_at"])
        then = replace(work, clock=lambda: began)  # the prompt has the date
        request, past = CreateResponse.model_validate(blueprint.request), await blueprint.past(work.keep)
        prepared = await bind(served, then, request, claimed.run_id, past)
        return Run(
            replace(prepared, prompt=tuple(blueprint.prompt)),
            served,
            work,
            blueprint.response,
            keeps=True,
            outlives=True,
            tape=tape,
            stored=stored,
        )

    async def _fail(self, claimed: Claimed, error: ApiError) -> None:
        """Ends a run that cannot be built. Its logged output is kept."""
        logs = self._served.stores.events
        blueprint = Blueprint.read(claimed.request)
        failed = await self._snapshot(claimed.run_id, blueprint)
        keep = self._served.stores.of(claimed.owner)
        failed.response.update(status="failed", error=error.of_response())
        end = {"type": "response.failed", "sequence_number": claimed.events, "response": failed.response}
        await keep.responses.put(replace(failed, parent=blueprint.position, session=blueprint.session))
        await announce(failed.response, keep, self._served.clock())
        await logs.append(claimed.run_id, claimed.events, [encode(end)])
        await logs.end(claimed.run_id)

    async def running_elsewhere(self, response_id: str, owner: str) -> StoredResponse | None:
        """The current response of a run of another process."""
        request = await self._claims.request(response_id, owner) if self._claims is not None else None
        return None if request is None else await self._snapshot(response_id, Blueprint.read(request))

    async def is_running(self, response_id: str, owner: str) -> bool:
        return self._claims is not None and await self._claims.is_running(response_id, owner)

    async def ended(self, response_id: str, owner: str) -> None:
        """Returns when a cancelled run of another process has ended."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _CANCEL_SECONDS
        while await self.is_running(response_id, owner):
            if loop.time() > until:
                raise StoreUnavailable(
                    f"The server that runs the response {response_id!r} has not cancelled it yet. Try again "
                    "in a moment."
                )
            await asyncio.sleep(_ASK_SECONDS)

    def _at_end(self, claimed: Claimed, stored: StoredResponse | None) -> Callable[[], BaseException] | None:
        """The error where the tape ends, for a run that shall not go on."""
        if claimed.cancelled:
            return asyncio.CancelledError
        if stored is not None:
            return lambda: RunInterrupted("The response has ended already.")
        attempts = claimed.attempts - 1
        if attempts >= self._served.settings.background_max_attempts:
            return lambda: RunInterrupted(
                f"The response was interrupted {attempts} times (--background-max-attempts). Its output so "
                "far is kept."
            )
        return None

    async def _snapshot(self, response_id: str, blueprint: Blueprint) -> StoredResponse:
        """From the logged events, and without waiting for more."""
        logged = await self._claims.logged(response_id) if self._claims is not None else []
        events = (event.partition(b"data: ")[2] for event in logged)
        read: list[dict[str, Any]] = [from_json(event) for event in events if b'"delta"' not in event[:200]]
        return blueprint.snapshot(read)

    async def _continue(self, claimed: Claimed, claims: EventLogs) -> None:
        try:
            run = await self.build(claimed)
        except StoreUnavailable:
            await claims.give_back(claimed.run_id)
            raise
        except Exception as error:
            _log.error("The background response %s cannot be continued.", claimed.run_id, exc_info=error)
            why = error.message if isinstance(error, ApiError) else "The server's log says why."
            problem = f"The response was interrupted and cannot be continued. {why}"
            await self._fail(claimed, RunInterrupted(problem))
            return
        _log.info("Continuing the background response %s, attempt %d.", claimed.run_id, claimed.attempts)
        self._background.go_on(run, claimed)


def _recorded(work: Work, seed: str, tape: Tape) -> Work:
    """The same work, whose ids follow from the seed, and whose steps are on the tape."""
    model = replace(work.model, engine=TapedEngine(work.model.engine, tape))
    return replace(work, model=model, ids=SeededIds(seed))
