"""An engine that samples one text per generation, with scores, for tests of whole turns."""

from collections.abc import AsyncGenerator, Sequence

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineInfo, Finish, Sampling, Step, TokenLogprob


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
