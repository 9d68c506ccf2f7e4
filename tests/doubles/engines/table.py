"""An engine with a known distribution, in which the next token depends on the last two."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Sequence

from inference.engine import EngineInfo, Finish, Sampling, Step, TokenLogprob


class TableEngine:
    """Samples from the ids in `words`, always greedily, whatever the sampling parameters."""

    def __init__(
        self, words: Sequence[int], seed: int, *, context: int = 1000, sharpness: float = 2.0
    ) -> None:
        self.words = tuple(words)
        self.info = EngineInfo(name="table", context_length=context, scores_prompts=True)
        self.open_generations = 0
        self.most_open = 0
        self._seed = seed
        self._sharpness = sharpness

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

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.open_generations += 1
        self.most_open = max(self.most_open, self.open_generations)
        try:
            so_far = list(tokens)
            of_prompt = self._of_prompt(so_far, sampling.prompt_logprobs)
            for made in range(1, (sampling.max_tokens or 50) + 1):
                await asyncio.sleep(0)
                token = self.scores(so_far)[0][0]
                scored = (
                    None if sampling.logprobs is None else (self.score(so_far, token, sampling.logprobs),)
                )
                so_far.append(token)
                finish = Finish.STOP if token in sampling.stop_token_ids else None
                finish = finish or (Finish.LENGTH if made == (sampling.max_tokens or 50) else None)
                yield Step((token,), finish, scored, 0, of_prompt if made == 1 else None)
                if finish is not None:
                    return
        finally:
            self.open_generations -= 1

    def _of_prompt(self, prompt: list[int], top: int | None) -> tuple[TokenLogprob | None, ...] | None:
        if top is None:
            return None
        return (None, *(self.score(prompt[:at], prompt[at], top) for at in range(1, len(prompt))))

    async def close(self) -> None:
        pass
