"""Engines with known distributions: one whose next token depends on the last two, one that knows answers."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Mapping, Sequence

from inference.engine import EngineInfo, Finish, Sampling, Step, TokenLogprob

_FILLERS = range(1_000, 1_100)  # unlikely tokens, so that there are always alternatives


class TableEngine:
    """Samples from the ids in `words`, always greedily, whatever the sampling parameters."""

    longest = 50  # tokens without a limit

    def __init__(
        self, words: Sequence[int], seed: int = 0, *, context: int = 1000, sharpness: float = 2.0
    ) -> None:
        self.words = tuple(words)
        self.info = EngineInfo(name="table", context_length=context, scores_prompts=True)
        self.open_generations = self.most_open = 0
        self.prompt: list[int] = []  # the first one
        self.samplings: list[Sampling] = []
        self._seed, self._sharpness = seed, sharpness

    def scores(self, before: Sequence[int]) -> list[tuple[int, float]]:
        """All possible next tokens with their log-probabilities, the likeliest first."""
        rng = random.Random(f"{self._seed} {tuple(before[-2:])}")
        logits = [rng.gauss(0, self._sharpness) for _ in self.words]
        total = math.log(sum(math.exp(logit) for logit in logits))
        pairs = zip(self.words, (logit - total for logit in logits), strict=True)
        return sorted(pairs, key=lambda pair: -pair[1])

    def score(self, before: Sequence[int], token: int, top: int) -> TokenLogprob:
        scores = self.scores(before)
        return TokenLogprob(token, dict(scores).get(token, -50.0), tuple(scores[:top]))

    def of_prompt(self, prompt: Sequence[int], top: int) -> list[TokenLogprob]:
        """The scores of all tokens but the first."""
        return [self.score(prompt[:at], prompt[at], top) for at in range(1, len(prompt))]

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.prompt = self.prompt or list(tokens)
        self.samplings.append(sampling)
        self.open_generations += 1
        self.most_open = max(self.most_open, self.open_generations)
        try:
            so_far, wanted, top = list(tokens), sampling.logprobs, sampling.prompt_logprobs
            of_prompt = None if top is None else (None, *self.of_prompt(so_far, top))
            limit = sampling.max_tokens or self.longest
            for made in range(1, limit + 1):
                await asyncio.sleep(0)
                token = self.scores(so_far)[0][0]
                scored = None if wanted is None else (self.score(so_far, token, wanted),)
                so_far.append(token)
                finish = Finish.STOP if token in sampling.stop_token_ids else None
                finish = finish or (Finish.LENGTH if made == limit else None)
                yield Step((token,), finish, scored, 0, of_prompt if made == 1 else None)
                if finish is not None:
                    return
        finally:
            self.open_generations -= 1

    async def close(self) -> None:
        pass


class ForkingEngine(TableEngine):
    """`answers` maps each text to its probability. They follow the first prompt that it receives."""

    longest = 1_000

    def __init__(self, answers: Mapping[tuple[int, ...], float]) -> None:
        super().__init__((), context=500)
        self._answers = dict(answers)

    def scores(self, before: Sequence[int]) -> list[tuple[int, float]]:
        sampled = tuple(before[len(self.prompt) :])
        weights: dict[int, float] = {}
        for answer, probability in self._answers.items():
            if answer[: len(sampled)] == sampled and len(answer) > len(sampled):
                token = answer[len(sampled)]
                weights[token] = weights.get(token, 0.0) + probability
        total = sum(weights.values()) or 1.0
        likely = [(token, math.log(weight / total)) for token, weight in weights.items()]
        rest = [(token, -30.0) for token in _FILLERS if token not in weights]
        return sorted(likely, key=lambda pair: -pair[1]) + rest

    def of_prompt(self, prompt: Sequence[int], top: int) -> list[TokenLogprob]:
        """The token at position i has the score -i, and the next id is slightly likelier."""
        return [
            TokenLogprob(token, -float(place), ((token + 1, -place + 0.5), (token, -float(place)))[:top])
            for place, token in enumerate(prompt[1:], start=1)
        ]
