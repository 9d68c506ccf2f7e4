"""The engine that all wires share: limits, stop ids, cancellation and the end of a generation.

Takes a wire and yields steps. A generation is one request to the server or several, each of which continues
from the tokens so far: a server may stop at tokens of its own choice, at which a generation need not end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from inference.engine import (
    EngineBusy,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    Finish,
    Sampling,
    Step,
    output_limit,
)
from inference.remote.connection import Caller
from inference.remote.failures import Refused
from inference.remote.wire import Ask, Piece, Wire

CHECK_SECONDS = 10.0


class RemoteEngine:
    def __init__(self, caller: Caller, wire: Wire, info: EngineInfo) -> None:
        self._caller, self._wire, self._info = caller, wire, info
        self._closed = False
        self.active = 0

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def check(self) -> None:
        """Raises `EngineFailed` if the server is not reached, or reports that it cannot generate."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await self._caller.reach(self._wire.health)
        except TimeoutError as error:
            raise EngineFailed(
                f"The engine at {self._caller.url} does not answer {self._wire.health} within "
                f"{CHECK_SECONDS:g} s."
            ) from error
        except Refused as error:
            if error.status >= 500:  # any other answer: a proxy without this path, which reaches the server
                raise
        except EngineBusy as error:  # it answers 503 while it loads its model, and once it has failed
            raise EngineFailed(str(error)) from error

    async def close(self) -> None:
        self._closed = True
        self._caller.abort()

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        limit = output_limit(len(tokens), sampling, self._info)
        self._check_open()
        self.active += 1
        try:
            if limit == 0:
                await self._wire.read(tokens)
                yield Step((), Finish.LENGTH)
                return
            async with aclosing(self._steps(tokens, sampling, limit)) as steps:
                async for step in steps:
                    yield step
        except EngineFailed as error:
            if self._closed:
                raise EngineClosed("The engine was closed during the generation.") from error
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise EngineFailed(
                f"The server at {self._caller.url} answers otherwise than {self._wire.title} does: {error!r}."
            ) from error
        finally:
            self.active -= 1

    async def _steps(
        self, tokens: Sequence[int], sampling: Sampling, limit: int
    ) -> AsyncGenerator[Step, None]:
        prompt, sampled = list(tokens), 0
        cut = _Cut(sampling, limit)
        while True:
            self._check_open()
            before = sampled
            ask = Ask(sampling, sampled, limit - sampled)
            async with aclosing(self._wire.sample(prompt, ask)) as pieces:
                async for piece in pieces:
                    step = cut.step(piece, sampled)
                    sampled += len(step.tokens)
                    prompt += step.tokens
                    if step.tokens or step.finish:
                        yield step
                    if step.finish:
                        return
            if sampled == before:
                raise EngineFailed(
                    f"The engine at {self._caller.url} ended a generation without a token. Its log may "
                    "contain the cause."
                )

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosed("The engine was closed.")


class _Cut:
    """Ends a generation: at a stop id, or where the limit is reached."""

    def __init__(self, sampling: Sampling, limit: int) -> None:
        self._stops = sampling.stop_token_ids - sampling.ignored_stop_ids
        self._least, self._limit = sampling.min_tokens, limit

    def step(self, piece: Piece, sampled: int) -> Step:
        """The part of a piece that belongs to the generation. `sampled` is the number of tokens before."""
        for place, token in enumerate(piece.tokens, start=1):
            if token in self._stops and sampled + place > self._least:
                return self._until(place, piece, Finish.STOP)
            if sampled + place == self._limit:
                return self._until(place, piece, Finish.LENGTH)
        return self._until(len(piece.tokens), piece, None)

    def _until(self, end: int, piece: Piece, finish: Finish | None) -> Step:
        logprobs = None if piece.logprobs is None else piece.logprobs[:end]
        return Step(piece.tokens[:end], finish, logprobs, piece.cached_tokens)
