"""Beam search: the likeliest continuations of a prompt, found over any engine that scores.

In go an engine, a prompt, how wide to search and a length penalty; out come beams, the best first. It asks
the engine for one token at a time and takes the alternatives from its scores, so what an engine keeps of a
prompt is what makes it fast. Only the model's own distribution counts: how to sample has no say.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from inference.engine import Engine, EngineInfo, Finish, Sampling, Step, TokenLogprob

MOST_BEAMS = 32  # each takes a generation of its own at every token


@dataclass(frozen=True, slots=True)
class Beam:
    tokens: tuple[int, ...] = ()
    scores: tuple[TokenLogprob, ...] = ()
    logprob: float = 0.0  # of all its tokens together
    finish: Finish | None = None

    def score(self, length_penalty: float) -> float:
        """By which beams of different lengths are compared: at 1, the mean per token."""
        return self.logprob / float(max(len(self.tokens), 1) ** length_penalty)

    def extended(self, scored: TokenLogprob, finish: Finish | None) -> Beam:
        return Beam(
            (*self.tokens, scored.token), (*self.scores, scored), self.logprob + scored.logprob, finish
        )


@dataclass(frozen=True, slots=True)
class Found:
    beams: tuple[Beam, ...]
    first: Step  # what was told of the prompt


async def search(
    engine: Engine, prompt: Sequence[int], sampling: Sampling, *, width: int, length_penalty: float = 1.0
) -> Found:
    """The `width` best beams. Of `sampling` only its limits and what it wants to be told are heeded."""
    room = engine.info.context_length - len(prompt)
    limit = max(room if sampling.max_tokens is None else min(room, sampling.max_tokens), 1)
    told = sampling.logprobs or 0
    asked = Sampling(
        temperature=0.0,
        max_tokens=1,
        stop_token_ids=sampling.stop_token_ids,
        logprobs=max(2 * width, told),
        cache_salt=sampling.cache_salt,
        priority=sampling.priority,
    )
    first = await _next(engine, prompt, replace(asked, prompt_logprobs=sampling.prompt_logprobs))
    steps: Sequence[Step] = [first]
    active, ended = [Beam()], list[Beam]()
    while True:
        grown = _grown(active, steps, sampling.stop_token_ids, limit, told)
        # A beam that ends outside of the best `width` would not have been gone on with either.
        ended += [beam for beam in grown[:width] if beam.finish is not None]
        active = [beam for beam in grown if beam.finish is None][:width]
        ended = sorted(ended, key=lambda beam: -beam.score(length_penalty))[:width]
        if not active or (len(ended) == width and _is_decided(ended, active, length_penalty)):
            return Found(tuple(ended), first)
        steps = await _next_of_all(engine, [[*prompt, *beam.tokens] for beam in active], asked)


def _grown(
    active: Sequence[Beam], steps: Sequence[Step], stops: frozenset[int], limit: int, told: int
) -> list[Beam]:
    """Every beam by each of its likeliest next tokens, the likeliest first."""
    grown = []
    for beam, step in zip(active, steps, strict=True):
        assert step.logprobs is not None
        top = step.logprobs[0].top
        for token, logprob in top:
            finish = Finish.STOP if token in stops else None
            if finish is None and len(beam.tokens) + 1 == limit:
                finish = Finish.LENGTH
            grown.append(beam.extended(TokenLogprob(token, logprob, top[:told]), finish))
    return sorted(grown, key=lambda beam: -beam.logprob)


def _is_decided(ended: Sequence[Beam], active: Sequence[Beam], length_penalty: float) -> bool:
    """Whether the best beam under way is no better than the worst of those that have ended.

    Every further token makes it less likely, so without a length penalty this is certain. With one it could
    still rise by a run of tokens that are all but certain; to wait for that is to go to the limit each time.
    """
    return active[0].score(length_penalty) <= ended[-1].score(length_penalty)


async def _next_of_all(
    engine: Engine, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> Sequence[Step]:
    tasks = [asyncio.create_task(_next(engine, prompt, sampling)) for prompt in prompts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _next(engine: Engine, prompt: Sequence[int], sampling: Sampling) -> Step:
    async with aclosing(engine.generate(prompt, sampling)) as steps:
        return await anext(steps)


class BeamSearch:
    """One search, and an engine for each of its beams that tells it as if it were sampled just now."""

    def __init__(self, engine: Engine, *, width: int, length_penalty: float) -> None:
        self._engine = engine
        self._width = width
        self._length_penalty = length_penalty
        self._searching = asyncio.Lock()
        self._found: Found | None = None

    def engine_of(self, rank: int) -> Engine:
        return _Ranked(self, self._engine.info, rank)

    async def found(self, prompt: Sequence[int], sampling: Sampling) -> Found:
        async with self._searching:  # in the task of whoever comes first: if all leave, it ends
            if self._found is None:
                self._found = await search(
                    self._engine,
                    prompt,
                    sampling,
                    width=self._width,
                    length_penalty=self._length_penalty,
                )
        return self._found


@dataclass(frozen=True, slots=True)
class _Ranked:
    of: BeamSearch
    info: EngineInfo
    rank: int

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        found = await self.of.found(tokens, sampling)
        beam = found.beams[self.rank]
        scores = None if sampling.logprobs is None else beam.scores
        yield replace(found.first, tokens=beam.tokens, finish=beam.finish, logprobs=scores)

    async def close(self) -> None:
        """The engine behind it is its owner's to close."""
