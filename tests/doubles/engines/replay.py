"""An engine that replays given token ids, for tests that decide every token and every failure."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from inference.engine import EngineFailed, EngineInfo, Finish, Sampling, Step


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
        honours: frozenset[str] | None = None,
    ) -> None:
        self.tokens = list(tokens)
        self.per_step = per_step
        self.fails_after = fails_after
        self.error = error or EngineFailed("the card fell out of the machine")
        self.open_generations = 0
        self.prompts: list[list[int]] = []
        self.samplings: list[Sampling] = []
        known = {} if honours is None else {"honours": honours}
        self.info = EngineInfo(name="replay", context_length=context_length, **known)  # type: ignore[arg-type]

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
