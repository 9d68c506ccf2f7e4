"""An engine that knows several answers with their probabilities, for tests of scores."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Mapping, Sequence

from inference.engine import EngineInfo, Finish, Sampling, Step, TokenLogprob

UNLIKELY = -30.0
_FILLERS = range(1_000, 1_100)  # unlikely tokens, so that there are always alternatives


class ForkingEngine:
    """`answers` maps each text to its probability. They follow the first prompt that it receives."""

    def __init__(self, answers: Mapping[tuple[int, ...], float]) -> None:
        self.info = EngineInfo(name="forking", context_length=500, scores_prompts=True)
        self.prompt: list[int] = []
        self.samplings: list[Sampling] = []
        self._answers = dict(answers)

    def _scores(self, sampled: Sequence[int]) -> list[tuple[int, float]]:
        weights: dict[int, float] = {}
        for answer, probability in self._answers.items():
            if answer[: len(sampled)] == tuple(sampled) and len(answer) > len(sampled):
                token = answer[len(sampled)]
                weights[token] = weights.get(token, 0.0) + probability
        total = sum(weights.values()) or 1.0
        likely = [(token, math.log(weight / total)) for token, weight in weights.items()]
        rest = [(token, UNLIKELY) for token in _FILLERS if token not in weights]
        return sorted(likely, key=lambda pair: -pair[1]) + rest

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.prompt = self.prompt or list(tokens)
        self.samplings.append(sampling)
        sampled = list(tokens[len(self.prompt) :])
        of_prompt = self._of_prompt(tokens, sampling.prompt_logprobs)
        limit = sampling.max_tokens or 1_000
        for made in range(1, limit + 1):
            await asyncio.sleep(0)
            scores = self._scores(sampled)
            token, logprob = scores[0]
            sampled.append(token)
            finish = Finish.STOP if token in sampling.stop_token_ids else None
            finish = finish or (Finish.LENGTH if made == limit else None)
            wanted = sampling.logprobs
            scored = None if wanted is None else (TokenLogprob(token, logprob, tuple(scores[:wanted])),)
            yield Step((token,), finish, scored, 0, of_prompt if made == 1 else None)
            if finish is not None:
                return

    @staticmethod
    def _of_prompt(prompt: Sequence[int], top: int | None) -> tuple[TokenLogprob | None, ...] | None:
        """The token at position i has the score -i, and the next id is slightly likelier."""
        if top is None:
            return None
        scored = [
            TokenLogprob(token, -float(place), ((token + 1, -place + 0.5), (token, -float(place)))[:top])
            for place, token in enumerate(prompt)
        ]
        return (None, *scored[1:])

    async def close(self) -> None:
        pass
