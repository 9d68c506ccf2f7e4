"""Beam search: the likeliest continuations of a prompt, over any engine that scores.

Takes an engine, a prompt, a width and a length penalty; returns beams, the best first. It requests one token
at a time and reads the alternatives from the scores, so the engine's prefix cache makes it fast. It uses only
the model's own distribution and ignores the sampling fields. Its own work runs in a thread; its steps are the
engine's.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from inference.engine import Engine, EngineInfo, Finish, Sampling, Step, TokenLogprob

MOST_BEAMS = 32  # each beam costs one generation per token
# Tokens of all beams, the prompt's counted for each: in each step, the engine looks up all of them.
MOST_POSITIONS = 131_072


@dataclass(frozen=True, slots=True)
class _Node:
    """One token of a beam; beams share the nodes before the point where they diverge."""

    before: _Node | None
    scored: TokenLogprob
    logprob: float  # of all tokens up to this one together
    length: int


@dataclass(frozen=True, slots=True)
class Beam:
    tokens: tuple[int, ...] = ()
    scores: tuple[TokenLogprob, ...] = ()
    logprob: float = 0.0  # of all its tokens together
    finish: Finish | None = None

    def score(self, length_penalty: float) -> float:
        return _score(self.logprob, len(self.tokens), length_penalty)


@dataclass(frozen=True, slots=True)
class _Ended:
    node: _Node
    finish: Finish

    def beam(self) -> Beam:
        scores = tuple(_path(self.node))
        return Beam(tuple(scored.token for scored in scores), scores, self.node.logprob, self.finish)


@dataclass(frozen=True, slots=True)
class FoundBeams:
    beams: tuple[Beam, ...]
    first: Step  # the prompt's cached tokens and scores


def most_tokens(width: int, prompt: int) -> int:
    """How many tokens each beam of such a search may have."""
    return MOST_POSITIONS // width - prompt


async def search(
    engine: Engine, prompt: Sequence[int], sampling: Sampling, *, width: int, length_penalty: float = 1.0
) -> FoundBeams:
    """The `width` best beams. Of `sampling`, only the limits and the requested scores apply."""
    room = min(engine.info.context_length - len(prompt), most_tokens(width, len(prompt)))
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
        owner=sampling.owner,
        priority=sampling.priority,
    )
    first = await _next(engine, prompt, replace(one_token, prompt_logprobs=sampling.prompt_logprobs))
    beams = _Beams(prompt, width, length_penalty, sampling, limit)
    steps: Sequence[Step] = [first]
    while prompts := await asyncio.to_thread(beams.grow, steps):
        steps = await _next_of_all(engine, prompts, one_token)
    return FoundBeams(await asyncio.to_thread(beams.found), first)


class _Beams:
    """The state of a search between two steps of the engine."""

    def __init__(
        self, prompt: Sequence[int], width: int, length_penalty: float, sampling: Sampling, limit: int
    ) -> None:
        self._prompt = list(prompt)
        self._width = width
        self._length_penalty = length_penalty
        self._sampling = sampling
        self._limit = limit
        self._alternatives = sampling.logprobs or 0
        self._active: list[_Node | None] = [None]  # None: no token yet
        self._ended: list[_Ended] = []

    def grow(self, steps: Sequence[Step]) -> list[list[int]]:
        """Extends every beam by its likeliest next tokens. Returns the next prompts; none at the end."""
        active: list[_Node | None] = []
        for rank, (logprob, parent, scored) in enumerate(self._likeliest(steps)):
            before = self._active[parent]
            length = 1 + (before.length if before is not None else 0)
            node = _Node(before, scored, logprob, length)
            finish = Finish.STOP if scored.token in self._sampling.stop_token_ids else None
            if finish is None and length == self._limit:
                finish = Finish.LENGTH
            if finish is None and len(active) < self._width:
                active.append(node)
            elif finish is not None and rank < self._width:
                # A beam that ends outside of the best `width` would not have been continued either.
                self._ended.append(_Ended(node, finish))
        self._active = active
        self._ended = sorted(self._ended, key=lambda ended: -self._score(ended.node))[: self._width]
        if not active or (len(self._ended) == self._width and self._is_decided()):
            return []
        return [self._prompt + [scored.token for scored in _path(node)] for node in active]

    def found(self) -> tuple[Beam, ...]:
        return tuple(ended.beam() for ended in self._ended)

    def _likeliest(self, steps: Sequence[Step]) -> list[tuple[float, int, TokenLogprob]]:
        """The best extensions of all beams: enough that `width` of them do not end, if that many exist."""
        candidates = []
        for parent, (node, step) in enumerate(zip(self._active, steps, strict=True)):
            assert step.logprobs is not None
            so_far, length = (node.logprob, node.length) if node is not None else (0.0, 0)
            held_back = self._held_back(length)
            candidates += [
                (so_far + logprob, parent, token)
                for token, logprob in step.logprobs[0].top
                if token not in held_back
            ]
        # Each beam has an ending for each stop id, at most; they must not crowd out those that continue.
        most = self._width + len(self._active) * max(len(self._sampling.stop_token_ids), 1)
        best = heapq.nlargest(most, candidates, key=lambda candidate: candidate[0])
        return [(logprob, parent, self._scored(steps[parent], token)) for logprob, parent, token in best]

    def _held_back(self, length: int) -> frozenset[int]:
        """The stop ids that a beam of this length may not end with."""
        sampling = self._sampling
        stops = sampling.stop_token_ids
        return stops if length < sampling.min_tokens else stops & sampling.ignored_stop_ids

    def _scored(self, step: Step, token: int) -> TokenLogprob:
        assert step.logprobs is not None
        top = step.logprobs[0].top
        own = next(logprob for other, logprob in top if other == token)
        return TokenLogprob(token, own, top[: self._alternatives])

    def _is_decided(self) -> bool:
        """Whether the best active beam is no better than the worst ended one.

        Every further token makes a beam less likely, so without a length penalty this is certain. With one, a
        run of almost certain tokens could still raise the score; to wait for that is to search to the limit.
        """
        best = self._active[0]
        return best is not None and self._score(best) <= self._score(self._ended[-1].node)

    def _score(self, node: _Node) -> float:
        return _score(node.logprob, node.length, self._length_penalty)


def _score(logprob: float, length: int, length_penalty: float) -> float:
    """Makes beams of different lengths comparable; with a penalty of 1, the mean per token."""
    return logprob / float(max(length, 1) ** length_penalty)


def _path(node: _Node | None) -> list[TokenLogprob]:
    """The scored tokens of a beam, from its first."""
    path = []
    while node is not None:
        path.append(node.scored)
        node = node.before
    return path[::-1]


async def _next_of_all(
    engine: Engine, prompts: Sequence[Sequence[int]], sampling: Sampling
) -> Sequence[Step]:
    tasks = []
    try:
        for prompt in prompts:
            tasks.append(asyncio.create_task(_next(engine, prompt, sampling)))
            await asyncio.sleep(0)  # an engine reads the whole prompt: others must not wait for all of them
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
        self._found: FoundBeams | None = None

    def most_tokens(self, prompt: int) -> int:
        """How long a beam after a prompt of this length may become; below 1, the prompt is too long."""
        return most_tokens(self._width, prompt)

    def engine(self, rank: int) -> Engine:
        return _Ranked(self, self._engine.info, rank)

    async def found(self, prompt: Sequence[int], sampling: Sampling) -> FoundBeams:
        # The first reader's task searches, so that the search ends when all readers have gone.
        async with self._searching:
            if self._found is None:
                self._found = await search(
                    self._engine, prompt, sampling, width=self._width, length_penalty=self._length_penalty
                )
        return self._found


@dataclass(frozen=True, slots=True)
class _Ranked:
    of: BeamSearch
    info: EngineInfo
    rank: int

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        result = await self.of.found(tokens, sampling)
        beam = result.beams[self.rank]
        scores = None if sampling.logprobs is None else beam.scores
        yield replace(result.first, tokens=beam.tokens, finish=beam.finish, logprobs=scores)

    async def close(self) -> None:
        """Leaves the wrapped engine open: its owner closes it."""
