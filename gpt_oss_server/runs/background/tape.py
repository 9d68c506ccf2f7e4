"""The tape of a run: everything that it took from outside, so that another process can continue it.

Takes sampled steps, results of tools and resolved citations as they come. Returns them again, in order, to a
run that is built from the same request: it then repeats the same events with the same ids and numbers, and
goes on where the tape ends. The tape knows no API, and nothing of how its records are stored.
"""

from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

from pydantic_core import from_json, to_json

from gpt_oss_server.errors import RunInterrupted
from gpt_oss_server.turns.plan import TurnTools
from inference.engine import Engine, EngineClosed, EngineInfo, Finish, Sampling, Step, TokenLogprob
from tools.tool import ToolOutput

INTERRUPTED = (
    "The server stopped while this call ran. It may have taken effect or not, and its result is lost. Check "
    "before you repeat it."
)
Record = dict[str, Any]
Resolve = Callable[[int, int | None], tuple[str, str] | None]


class HandedOver(BaseException):
    """The run goes on in another process; this one ends it without a word. No `except Exception` stops it."""


class Tape:
    def __init__(
        self, recorded: Sequence[bytes] = (), *, at_end: Callable[[], BaseException] | None = None
    ) -> None:
        """With `at_end`, the run does not go on after the last recorded step, but ends with this error."""
        self._recorded: deque[Record] = deque(from_json(record) for record in recorded)
        self._at_end = at_end
        self._new: list[Record] = []
        self.count = len(recorded)  # records that are stored already
        self.before_live: Callable[[], Awaitable[None]] = _nothing  # called once, where the tape ends
        self._is_live = not recorded
        self.flush: Callable[[], Awaitable[None]] = _nothing  # stores the records so far

    async def go_live(self) -> None:
        """Call it before anything that is not on the tape."""
        if not self._is_live:
            self._is_live = True
            await self.before_live()

    @property
    def replays(self) -> bool:
        return bool(self._recorded)

    def take(self) -> list[bytes]:
        """The records since the last call."""
        new, self._new = self._new, []
        return [to_json(record) for record in new]

    def next(self, kind: str) -> Any:
        """The next recorded value if it is of this kind, else None."""
        if self._recorded and kind in self._recorded[0]:
            return self._recorded.popleft()[kind]
        return None

    def record(self, kind: str, value: object) -> None:
        """Adds a new record. Raises where the tape is not used up: the run does not do what it did before."""
        if self._recorded:
            was = next(iter(self._recorded[0]))
            raise RunInterrupted(
                "The response was interrupted and cannot be continued: this server would do something else "
                f"than the one before ({kind} instead of {was})."
            )
        if self._at_end is not None:
            raise self._at_end()
        self._new.append({kind: value})

    def record_step(self, step: Step) -> None:
        """Adds a step; steps between two stores become one record."""
        if self._new and "step" in self._new[-1]:
            last = self._new[-1]["step"]
            last["tokens"] += step.tokens
            for name, count in _counts(step).items():
                last[name] += count
            last["finish"] = step.finish
            if step.logprobs is not None:
                last["logprobs"] = [*last["logprobs"], *map(_entry, step.logprobs)]
            return
        logprobs = None if step.logprobs is None else [*map(_entry, step.logprobs)]
        value = {"tokens": [*step.tokens], "finish": step.finish, "logprobs": logprobs}
        self.record("step", {**value, **_counts(step)})

    def citing(self, resolve: Resolve | None) -> Resolve | None:
        """A resolver that records what it finds: another process does not have this one's pages."""
        if resolve is None:
            return None

        def resolved(cursor: int, line: int | None) -> tuple[str, str] | None:
            recorded = self.next("citation")
            if recorded is None:
                recorded = {"found": resolve(cursor, line)}
                self.record("citation", recorded)
            found = recorded["found"]
            return None if found is None else (found[0], found[1])

        return resolved


class TapedEngine:
    """An `Engine` that first repeats the steps on the tape, then continues them."""

    def __init__(self, engine: Engine, tape: Tape) -> None:
        self._engine = engine
        self._tape = tape

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        tape = self._tape
        sampled: list[int] = []
        began = tape.next("generation") is not None
        if not began:
            tape.record("generation", True)
        while (recorded := tape.next("step")) is not None:
            step = _step(recorded)
            sampled += step.tokens
            yield step
            if step.finish is not None:
                return
        limit = sampling.max_tokens
        if sampled:
            limit = None if limit is None else limit - len(sampled)
            tokens = [*tokens, *sampled]
            sampling = replace(sampling, max_tokens=limit, continued=(*sampling.continued, *sampled))
        if sampled and (limit == 0 or len(tokens) >= self.info.context_length):
            tape.record_step(last := Step((), Finish.LENGTH))
            yield last
            return
        await tape.go_live()
        try:
            async with aclosing(self._engine.generate(tokens, sampling)) as steps:
                async for step in steps:
                    if began and step.cached_tokens:  # the first attempt's count is that of the response
                        step = replace(step, cached_tokens=0)
                    tape.record_step(step)
                    yield step
        except EngineClosed:
            raise HandedOver from None

    async def close(self) -> None:
        """Does nothing: the owner of the wrapped engine closes it."""


class ReplayableTools(TurnTools, Protocol):
    def replayed(self, recipient: str) -> None:
        """Counts a call whose result is on the tape."""
        ...

    async def repeat(self, recipient: str, arguments: str) -> None:
        """Makes a call again for what it leaves behind, not for its result."""
        ...

    def repeatable(self, recipient: str) -> bool:
        """Whether a call that was interrupted may simply be made again."""
        ...


class TapedTools:
    """`TurnTools` that first repeat the results on the tape."""

    def __init__(self, tools: ReplayableTools, tape: Tape) -> None:
        self._tools = tools
        self._tape = tape
        self._repeated: list[tuple[str, str]] = []  # recorded calls that can be made again
        tape.before_live = self._rebuild_sessions

    def runs(self, recipient: str) -> bool:
        return self._tools.runs(recipient)

    async def run(self, recipient: str, arguments: str) -> ToolOutput:
        tape = self._tape
        began = tape.next("call") is not None
        if (recorded := tape.next("output")) is not None:
            self._tools.replayed(recipient)
            if self._tools.repeatable(recipient):
                self._repeated.append((recipient, arguments))
            return ToolOutput(recorded["text"], recorded["failed"], recorded["details"])
        if began and not self._tools.repeatable(recipient):
            output = ToolOutput(INTERRUPTED, failed=True)
        else:
            if not began:
                tape.record("call", recipient)
                await tape.flush()  # first: a call that may have begun must never seem not to have
            await tape.go_live()
            output = await self._tools.run(recipient, arguments)
        tape.record("output", _plain(output))
        return output

    async def _rebuild_sessions(self) -> None:
        """Makes the recorded calls again: later ones and citations refer to the pages that they opened."""
        for recipient, arguments in self._repeated:
            await self._tools.repeat(recipient, arguments)


async def _nothing() -> None: ...


def _plain(output: ToolOutput) -> Mapping[str, Any]:
    return {"text": output.text, "failed": output.failed, "details": dict(output.details)}


def _entry(score: TokenLogprob) -> tuple[int, float, tuple[tuple[int, float], ...], int | None]:
    return score.token, score.logprob, score.top, score.rank


def _counts(step: Step) -> dict[str, int]:
    return {"cached": step.cached_tokens, "accepted": step.accepted, "rejected": step.rejected}


def _step(recorded: Mapping[str, Any]) -> Step:
    scores = recorded["logprobs"]
    logprobs = None
    if scores is not None:
        logprobs = tuple(
            TokenLogprob(token, logprob, tuple((other, score) for other, score in top), rank)
            for token, logprob, top, rank in scores
        )
    finish = recorded["finish"]
    return Step(
        tuple(recorded["tokens"]),
        None if finish is None else Finish(finish),
        logprobs,
        recorded["cached"],
        accepted=recorded.get("accepted", 0),  # records of older servers have none
        rejected=recorded.get("rejected", 0),
    )
