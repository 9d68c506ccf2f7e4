"""An engine that samples random tokens within its grammar."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineInfo, Finish, Sampling, Step
from tests.doubles.harmony.sampling import RandomModel, closing_tokens


class RandomEngine:
    """Samples random tokens that the grammar allows, as fast as it computes masks."""

    def __init__(self, encoding: Encoding, seed: int = 1, likely: Sequence[int] = ()) -> None:
        self.info = EngineInfo(name="random", context_length=8_192, enforces_grammar=True)
        self._model = RandomModel(seed, [*closing_tokens(encoding), *likely])

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        assert sampling.grammar is not None
        assert sampling.max_tokens is not None
        sampled, stopped = self._model.answer(sampling.grammar, sampling.max_tokens, sampling.stop_token_ids)
        yield Step(tuple(sampled), Finish.STOP if stopped else Finish.LENGTH)

    async def close(self) -> None:
        pass
