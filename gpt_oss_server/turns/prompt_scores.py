"""The log-probabilities of the prompt's own tokens: requested from the engine once, in vLLM's JSON.

Takes an engine that scores prompts and the number of alternatives. Returns an engine to use in its place,
which keeps the scores of the prompt and returns them as JSON. It must not know any API.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from gpt_oss_server.content.logprobs import LEAST, Speller
from gpt_oss_server.errors import UnsupportedField
from inference.engine import Engine, EngineInfo, Sampling, Step, TokenLogprob


class ScoredPrompt:
    """An `Engine` that requests the scores of the prompt with its first generation."""

    def __init__(self, engine: Engine, top: int) -> None:
        self._engine = engine
        self._top = top
        self._has_scored = False
        self.scores: tuple[TokenLogprob | None, ...] = ()

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        if not self._has_scored:
            self._has_scored = True
            sampling = replace(sampling, prompt_logprobs=self._top)
        async with aclosing(self._engine.generate(tokens, sampling)) as steps:
            async for step in steps:
                if step.prompt_logprobs is not None:
                    self.scores = step.prompt_logprobs
                yield step

    async def close(self) -> None:
        """Does nothing: the owner of the wrapped engine closes it."""

    def as_json(self, speller: Speller, top: int) -> list[dict[str, Any] | None]:
        return [None if scored is None else _entry(scored, speller, top) for scored in self.scores]


def scored_prompt(engine: Engine, top: int, param: str) -> ScoredPrompt:
    if not engine.info.scores_prompts:
        raise UnsupportedField(
            f"`{param}` requires scores, which the model {engine.info.name!r} does not have. Leave it out.",
            param=param,
        )
    return ScoredPrompt(engine, top)


def _entry(scored: TokenLogprob, speller: Speller, top: int) -> dict[str, Any]:
    """By token id: the likeliest tokens, and the prompt's own token at any rank."""
    ranked = {token: (logprob, rank) for rank, (token, logprob) in enumerate(scored.top, 1)}
    _, listed = ranked.get(scored.token, (0.0, None))
    shown: dict[int, tuple[float, int | None]] = dict(list(ranked.items())[:top])
    shown[scored.token] = (scored.logprob, scored.rank if listed is None else listed)
    return {
        str(token): {"logprob": max(logprob, LEAST), "rank": rank, "decoded_token": speller.spelt(token)}
        for token, (logprob, rank) in shown.items()
    }
