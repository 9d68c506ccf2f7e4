"""The engine that all wires share: limits, stop ids, cancellation and the end of a generation.

Takes the servers of one model and yields steps. A generation is one request to a server or several, each of
which continues from the tokens so far: a server may stop at tokens of its own choice, at which a generation
need not end, and it may break, after which another one continues.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from inference.engine import (
    EngineBusy,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    Finish,
    InferenceError,
    Sampling,
    Step,
    output_limit,
)
from inference.grammar import Notation, SpelledGrammar, Spelling
from inference.remote.connection import Refused, Unreachable
from inference.remote.replicas import Keeper, Replica, Replicas
from inference.remote.wire import Ask, Piece

_log = logging.getLogger(__name__)

_BAD_REQUEST, _SERVERS_FAULT = 400, 500
_ATTEMPTS = 3  # times that one generation may break and be continued
_PROBE_SECONDS = 2.0

_NO_TOKEN = "ended a generation without a token. Its log may contain the cause"

CHECK_SECONDS = 10.0
_LOOK = 0.05  # seconds between looks at a server that starts
PAUSE = 0.5  # seconds before a broken generation is continued where there is no other server


class RemoteEngine:
    def __init__(
        self, replicas: Replicas, info: EngineInfo, check: Callable[[Replica], Awaitable[None]]
    ) -> None:
        """`check` raises `InferenceError` for a server that has come back with another model."""
        self._replicas, self.info, self._check = replicas, info, check
        self._closed = False
        self._probing: asyncio.Task[None] | None = None
        self._continued = self._corrected = 0
        self.active = 0

    async def check(self) -> None:
        """Raises `EngineFailed` if no server is reached that reports that it can generate."""
        problems = await asyncio.gather(*(_health_problem(replica) for replica in self._replicas.all))
        sentences = [problem for problem in problems if problem is not None]
        if len(sentences) == len(problems):
            raise EngineFailed(" ".join(sentences))

    async def close(self) -> None:
        self._closed = True
        if self._probing is not None:
            self._probing.cancel()
        for replica in self._replicas.all:
            replica.wire.caller.abort()
            if replica.keeper is not None:
                await asyncio.to_thread(replica.keeper.close)

    def check_room(self) -> None:
        self._replicas.check_room()

    def measures(self) -> Mapping[str, float]:
        now = self._replicas.clock()
        return {
            "running": self.active,
            "continued": self._continued,
            "corrected": self._corrected,
            "replicas": len(self._replicas.all),
            "replicas_ready": sum(not replica.rests(now) for replica in self._replicas.all),
        }

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        limit = output_limit(len(tokens), sampling, self.info)
        self._check_open()
        self._probe()
        self.active += 1
        try:
            if limit == 0:
                await self._replicas.choose(tokens).wire.read(tokens)
                yield Step((), Finish.LENGTH)
                return
            async with aclosing(self._steps(tokens, sampling, limit)) as steps:
                async for step in steps:
                    yield step
        except EngineFailed as error:
            if self._closed:
                raise EngineClosed("The engine was closed during the generation.") from error
            raise
        finally:
            self.active -= 1

    async def _steps(
        self, tokens: Sequence[int], sampling: Sampling, limit: int
    ) -> AsyncGenerator[Step, None]:
        prompt, sampled = list(tokens), 0
        cut, form = _Cut(sampling, limit), _Form(sampling)
        route = _Route(self._replicas, tokens)
        while True:
            self._check_open()
            before = sampled
            ask = await form.of(Ask(sampling, sampled, limit - sampled), route.choose().wire.notation)
            try:
                async with aclosing(route.sample(prompt, ask)) as pieces:
                    async for piece in pieces:
                        step, fits = form.fitted(cut.step(piece, sampled))
                        sampled += len(step.tokens)
                        prompt += step.tokens
                        if step.tokens or step.finish:
                            yield step
                        if step.finish:
                            return
                        if not fits:
                            self._corrected += 1
                            break
                    else:
                        if sampled == before:
                            raise route.failure(_NO_TOKEN)
            except InferenceError as error:
                if _refuses_form(error, ask) and sampled == before:
                    form.give_up(error)
                elif self._closed or not route.goes_on_after(error, sampled):
                    raise
                else:
                    await asyncio.sleep(0 if route.has_others else PAUSE * route.attempts**2)
                    self._continued += 1
                    _log.warning("A generation is continued after %d tokens. %s", sampled, error)

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("The engine was closed.")

    def _probe(self) -> None:
        if self._probing is None and len(self._replicas.all) > 1:
            self._probing = asyncio.create_task(self._probes())

    async def _probes(self) -> None:
        """Finds servers that died before a generation does, and those that came back."""
        while not self._closed:
            await asyncio.gather(*map(self._probe_one, self._replicas.all))
            await asyncio.sleep(_PROBE_SECONDS)

    async def _probe_one(self, replica: Replica) -> None:
        was_down = replica.failures > 0 or not replica.checked
        if (problem := await _health_problem(replica)) is not None:
            if not was_down:
                self._replicas.failed(replica, EngineFailed(problem))
            return
        if not was_down:
            return
        try:
            await self._check(replica)
        except (Unreachable, EngineBusy):
            return  # it is only about to come back
        except InferenceError as error:
            if replica.checked:
                _log.warning("%s answers again, but is not used. %s", replica.url, error)
            replica.checked = False
            return
        replica.checked = True
        self._replicas.answered(replica)
        _log.warning("%s answers again.", replica.url)


class _Route:
    """The way of one generation from server to server."""

    def __init__(self, replicas: Replicas, prompt: Sequence[int]) -> None:
        self._replicas, self._prompt = replicas, prompt
        self._tried: list[Replica] = []
        self._at: Replica | None = None
        self.attempts = 0

    def choose(self) -> Replica:
        if self._at is None:
            self._at = self._replicas.choose(self._prompt, self._tried)
        return self._at

    async def sample(self, prompt: Sequence[int], ask: Ask) -> AsyncGenerator[Piece, None]:
        replica = self.choose()
        replica.running += 1
        try:
            if replica.keeper is not None and (self.attempts or replica.keeper.is_starting):
                await _until_back(replica, replica.keeper)
            async with aclosing(replica.wire.sample(prompt, ask)) as pieces:
                async for piece in pieces:
                    if replica.failures:
                        self._replicas.answered(replica)
                    yield piece
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise self.failure(f"answers otherwise than {replica.wire.title} does: {error!r}") from error
        finally:
            replica.running -= 1

    @property
    def has_others(self) -> bool:
        """Whether there is a server that was not tried for this generation."""
        return any(replica not in self._tried for replica in self._replicas.all)

    def failure(self, what: str) -> EngineFailed:
        assert self._at is not None
        return EngineFailed(f"The server at {self._at.url} {what}.")

    def goes_on_after(self, error: InferenceError, sampled: int) -> bool:
        """Whether the generation is continued, here or elsewhere."""
        replica, self._at = self._at, None
        if replica is None:
            return False
        self._tried.append(replica)
        if isinstance(error, EngineBusy):
            self._replicas.busy(replica, error)
        elif not isinstance(error, EngineFailed) or _is_clients_fault(error):
            return False
        else:
            self._replicas.failed(replica, error)
        self.attempts += 1
        # Without another server, a request that got no token would only meet the same failure.
        keeper = replica.keeper
        may_pass = sampled > 0 if keeper is None else keeper.problem is None
        return self.attempts <= _ATTEMPTS and (self.has_others or may_pass)


def _is_clients_fault(error: EngineFailed) -> bool:
    return isinstance(error, Refused) and error.status < _SERVERS_FAULT


def _refuses_form(error: InferenceError, ask: Ask) -> bool:
    return isinstance(error, Refused) and error.status == _BAD_REQUEST and ask.grammar is not None


async def _until_back(replica: Replica, keeper: Keeper) -> None:
    """Waits until the server answers, which may just have died. Raises `EngineFailed` if it cannot start."""
    while keeper.is_starting or await _health_problem(replica) is not None:
        if keeper.problem is not None:
            raise EngineFailed(keeper.problem)
        await asyncio.sleep(_LOOK)


async def _health_problem(replica: Replica) -> str | None:
    """Why the server cannot generate, as a sentence; None if it can."""
    path = replica.wire.health
    if replica.keeper is not None and replica.keeper.is_starting:  # requests wait for it
        return replica.keeper.problem
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await replica.wire.caller.reach(path)
    except TimeoutError:
        return f"The engine at {replica.url} does not answer {path} within {CHECK_SECONDS:g} s."
    except EngineBusy as error:  # while it loads its model, and once it has failed
        return str(error)
    except EngineFailed as error:
        # Another answer than a server's own failure: a proxy without this path, which reaches the server.
        return None if _is_clients_fault(error) else str(error)
    return None


class _Cut:
    """Ends a generation: at a stop id, or where the limit is reached."""

    def __init__(self, sampling: Sampling, limit: int) -> None:
        self._stops = sampling.stop_token_ids - sampling.ignored_stop_ids
        self._least, self._limit = sampling.min_tokens, limit

    def step(self, piece: Piece, sampled: int) -> Step:
        """The part of a piece that belongs to the generation. `sampled` is the number of tokens before."""
        for count, token in enumerate(piece.tokens, start=1):
            if token in self._stops and sampled + count > self._least:
                return self._until(count, piece, Finish.STOP)
            if sampled + count == self._limit:
                return self._until(count, piece, Finish.LENGTH)
        return self._until(len(piece.tokens), piece, None)

    def _until(self, end: int, piece: Piece, finish: Finish | None) -> Step:
        logprobs = None if piece.logprobs is None else piece.logprobs[:end]
        return Step(piece.tokens[:end], finish, logprobs, piece.cached_tokens)


class _Form:
    """The grammar of one generation, as the text that its requests send along.

    Where the model hardly ever leaves it, requests have none until a token does not fit: that token is
    dropped, and sampled again with what is left of the grammar. Unless the choice is cut (`top_p` and its
    like), the distribution is the grammar's own: the others share the probability of tokens that do not fit.
    """

    def __init__(self, sampling: Sampling) -> None:
        grammar = sampling.grammar
        self._spelling = grammar.spelling() if isinstance(grammar, SpelledGrammar) else None
        self._is_enforced = not (isinstance(grammar, SpelledGrammar) and grammar.is_usual)
        if self._spelling is not None:
            self._spelling.take(sampling.continued)

    def fitted(self, step: Step) -> tuple[Step, bool]:
        """The step up to a token that does not fit, and whether all do. Then the next request enforces it."""
        if self._spelling is None:
            return step, True
        if self._is_enforced:
            self._spelling.take(step.tokens)
            return step, True
        end = self._spelling.take_fitting(step.tokens)
        if end == len(step.tokens):
            return step, True
        self._is_enforced = True
        logprobs = None if step.logprobs is None else step.logprobs[:end]
        return replace(step, tokens=step.tokens[:end], finish=None, logprobs=logprobs), False

    async def of(self, ask: Ask, notation: Notation | None) -> Ask:
        """The request with the grammar of what it samples; shorter where no grammar can begin yet."""
        if self._spelling is None or notation is None or not self._is_enforced:
            return ask
        return await asyncio.to_thread(_with_grammar, ask, self._spelling, notation)

    def give_up(self, why: InferenceError) -> None:
        """The server does not take the grammar: the turn's rest is free, and checked when it has ended."""
        _log.warning("The turn's form is checked after it has ended, not enforced. %s", why)
        self._spelling = None


def _with_grammar(ask: Ask, spelling: Spelling, notation: Notation) -> Ask:
    grammar = spelling.rest(notation)
    if spelling.is_inside_character:
        ask = replace(ask, limit=1)
    ends = frozenset() if grammar is None else spelling.ends
    return replace(ask, grammar=grammar, ends=ends)
