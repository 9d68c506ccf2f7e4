"""A model that samples random tokens within a grammar, with some tokens made likely.

Every allowed token has the weight 1, except for those that close a body, which have a share of the whole.
"""

from collections.abc import AsyncGenerator, Collection, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gpt_oss_server.harmony.encoding import CALL, END, RETURN, Encoding
from inference.engine import EngineInfo, Finish, Sampling, Step
from inference.grammar import Grammar

STOPS = frozenset({RETURN, CALL})
SHARE = 0.25  # of each likely token that is allowed


def allowed(mask: bytes) -> NDArray[np.bool_]:
    bits: NDArray[np.bool_] = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little").astype(bool)
    return bits


def fitting(grammar: Grammar, tokens: Sequence[int]) -> int:
    """The number of tokens up to the first that the grammar does not allow."""
    state = grammar.start()
    for count, token in enumerate(tokens):
        if not allowed(state.mask())[token]:
            return count
        state.accept(token)
    return len(tokens)


@cache
def closing_tokens(encoding: Encoding) -> tuple[int, ...]:
    """The ends of messages, and the tokens that close a text, an object or a list in JSON."""
    return (END, RETURN, CALL, *(token for text in ('"', "}", "]") for token in encoding.encode(text)))


def body(encoding: Encoding, tokens: Sequence[int]) -> str:
    """The text of the one message that the tokens are."""
    return encoding.decode(tokens).partition("<|message|>")[2].removesuffix("<|return|>")


class RandomModel:
    def __init__(self, seed: int, likely: Sequence[int], share: float = SHARE) -> None:
        self._random = np.random.default_rng(seed)
        self._likely = np.array(likely)
        self._share = share

    def answer(
        self, grammar: Grammar, most: int = 400, stops: Collection[int] = STOPS, begun: Sequence[int] = ()
    ) -> tuple[list[int], bool]:
        """Continues the tokens in `begun`. Returns all tokens, and whether it stopped by itself."""
        state, tokens = grammar.start(), list(begun)
        for token in begun:
            state.accept(token)
        while len(tokens) < most:
            token = self._pick(allowed(state.mask()))
            state.accept(token)
            tokens.append(token)
            if token in stops:
                return tokens, True
        return tokens, False

    def _pick(self, may: NDArray[np.bool_]) -> int:
        assert may.any(), "the grammar allows nothing"
        open_ends = self._likely[may[self._likely]]
        if len(open_ends) and self._random.random() < self._share * len(open_ends):
            return int(self._random.choice(open_ends))
        return int(self._random.choice(np.flatnonzero(may)))


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
