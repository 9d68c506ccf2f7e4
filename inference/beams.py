"""Beam search: the likeliest continuations of a prompt, over any engine that scores.

Takes an engine, a prompt, a width and a length penalty; returns beams, the best first. It requests one token
at a time and reads the alternatives from the scores, so the engine's prefix cache makes it fast. It uses only
the model's own distribution and ignores the sampling fields.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from inference.engine import Engine, EngineInfo, Finish, Sampling, Step, TokenLogprob

MOST_BEAMS = 32  # each beam costs one generation per token


@dataclass(frozen=True, slots=True)
class Beam:
    tokens: tuple[int, ...] = ()
    scores: tuple[TokenLogprob, ...] = ()
    logprob: float = 0.0  # of all its tokens together
    finish: Finish | None = None

    def score(self, length_penalty: float) -> float:
        """Makes beams of different lengths comparable; with a penalty of 1, the mean per token."""
        return self.logprob / float(max(len(self.tokens), 1) ** length_penalty)

    def extended(self, scored: TokenLogprob, finish: Finish | None) -> Beam:
        return Beam(
            (*self.tokens, scored.token), (*self.scores, scored), self.logprob + scored.logprob, finish
        )


@dataclass(frozen=True, slots=True)
class Found:
    beams: tuple[Beam, ...]
    first: Step  # the prompt's cached tokens and scores


async def search(
    engine: Engine, prompt: Sequence[int], sampling: Sampling, *, width: int, length_penalty: float = 1.0
) -> Found:
    """The `width` best beams. Of `sampling`, only the limits and the requested scores apply."""
    room = engine.info.context_length - len(prompt)
    limit = max(room if sampling.max_tokens is None else min(room, sampling.max_tokens), 1)
    alternatives = sampling.logprobs or 0
    held_back = sampling.stop_token_ids if sampling.min_tokens else sampling.ignored_stop_ids
    one_token = Sampling(
        temperature=0.0,
        max_tokens=1,
        stop_token_ids=sampling.stop_token_ids,
        # Each beam needs two likely tokens that may be its next.
        logprobs=max(2 * width + len(held_back), alternatives),
        cache_salt=sampling.cache_salt,
        priority=sampling.priority,
    )
    first = await _next(engine, prompt, replace(one_token, prompt_logprobs=sampling.prompt_logprobs))
    steps: Sequence[Step] = [first]
    active, ended = [Beam()], list[Beam]()
    while True:
        grown = _grown(active, steps, sampling, limit, alternatives)
        # A beam that ends outside of the best `width` would not have been continued either.
        ended += [beam for beam in grown[:width] if beam.finish is not None]
        active = [beam for beam in grown if beam.finish is None][:width]
        ended = sorted(ended, key=lambda beam: -beam.score(length_penalty))[:width]
        if not active or (len(ended) == width and _is_decided(ended, active, length_penalty)):
            return Found(tuple(ended), first)
        steps = await _next_of_all(engine, [[*prompt, *beam.tokens] for beam in active], one_token)


def _grown(
    active: Sequence[Beam], steps: Sequence[Step], sampling: Sampling, limit: int, alternatives: int
) -> list[Beam]:
    """Every beam, extended by each of its likeliest next tokens; the likeliest first."""
    grown = []
    for beam, step in zip(active, steps, strict=True):
        assert step.logprobs is not None
        top = step.logprobs[0].top
        for token, logprob in top:
            finish = Finish.STOP if token in sampling.stop_token_ids else None
            is_early = len(beam.tokens) < sampling.min_tokens
            if finish is not None and (is_early or token in sampling.ignored_stop_ids):
                continue
            if finish is None and len(beam.tokens) + 1 == limit:
                finish = Finish.LENGTH
            grown.append(beam.extended(TokenLogprob(token, logprob, top[:alternatives]), finish))
    return sorted(grown, key=lambda beam: -beam.logprob)


def _is_decided(ended: Sequence[Beam], active: Sequence[Beam], length_penalty: float) -> bool:
    """Whether the best active beam is no better than the worst ended one.

    Every further token makes a beam less likely, so without a length penalty this is certain. With one, a
    run of almost certain tokens could still raise the score; to wait for that is to search to the limit.
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
    """One search, and for each of its beams an engine that yields it as if it had just sampled it."""

    def __init__(self, engine: Engine, *, width: int, length_penalty: float) -> None:
        self._engine = engine
        self._width = width
        self._length_penalty = length_penalty
        self._searching = asyncio.Lock()
        self._found: Found | None = None

    def engine_of(self, rank: int) -> Engine:
        return _Ranked(self, self._engine.info, rank)

    async def found(self, prompt: Sequence[int], sampling: Sampling) -> Found:
        # The first reader's task searches, so that the search ends when all readers have gone.
        async with self._searching:
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
        """Leaves the wrapped engine open: its owner closes it."""
