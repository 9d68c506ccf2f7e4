"""Engines that replay tokens or texts, for tests that decide every token, every score and every failure."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineFailed, EngineInfo, Finish, Sampling, Step, TokenLogprob


class ReplayEngine:
    """Replays `tokens` in every generation, `per_step` at a time; can fail after `fails_after` tokens."""

    def __init__(
        self,
        tokens: Sequence[int],
        *,
        per_step: int = 1,
        fails_after: int | None = None,
        error: Exception | None = None,
        context_length: int = 131_072,
        **known: Any,
    ) -> None:
        """`known` are further fields of its info."""
        self.tokens = list(tokens)
        self.per_step = per_step
        self.fails_after = fails_after
        self.error = error or EngineFailed("the card fell out of the machine")
        self.open_generations = 0
        self.prompts: list[list[int]] = []
        self.samplings: list[Sampling] = []
        self.info = EngineInfo(name="replay", context_length=context_length, **known)

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.prompts.append(list(tokens))
        self.samplings.append(sampling)
        self.open_generations += 1
        try:
            limit = len(self.tokens) if sampling.max_tokens is None else sampling.max_tokens
            made = self.tokens[:limit]
            for at in range(0, len(made), self.per_step):
                if self.fails_after is not None and at >= self.fails_after:
                    raise self.error
                await asyncio.sleep(0)
                yield Step(tuple(made[at : at + self.per_step]))
            if self.fails_after is not None:
                raise self.error
            yield Step((), Finish.LENGTH if limit < len(self.tokens) else Finish.STOP)
        finally:
            self.open_generations -= 1

    async def close(self) -> None:
        pass


def score_of(token: int, top: int) -> TokenLogprob:
    """A score that is unique to the token, so that tests can tell tokens apart."""
    others = tuple((token + at, -(token + at) / 1e5) for at in range(top))
    return TokenLogprob(token, -token / 1e5, others)


class TurnsEngine:
    """Samples the texts in order and repeats the last one, within the limit. Every prompt is cached."""

    def __init__(self, encoding: Encoding, *texts: str, per_step: int = 1, context: int = 8_192) -> None:
        self.info = EngineInfo(name="turns", context_length=context)
        self.prompts: list[list[int]] = []
        self.samplings: list[Sampling] = []
        self.open = 0
        self._turns = [encoding.encode_special(text) for text in texts]
        self._per_step = per_step

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        turn = self._turns[min(len(self.prompts), len(self._turns) - 1)]
        self.prompts.append(list(tokens))
        self.samplings.append(sampling)
        self.open += 1
        try:
            assert sampling.max_tokens is not None
            made = turn[: sampling.max_tokens]
            finish = Finish.STOP if len(made) == len(turn) else Finish.LENGTH
            for at in range(0, len(made), self._per_step):
                part = tuple(made[at : at + self._per_step])
                top = sampling.logprobs
                scores = None if top is None else tuple(score_of(token, top) for token in part)
                cached = 0 if at else len(tokens) - 1
                yield Step(part, finish if at + self._per_step >= len(made) else None, scores, cached)
        finally:
            self.open -= 1

    async def close(self) -> None:
        pass
