"""The smallest interface to a model, of OpenAI's reference server: all tokens so far in, the next one out.

The engine keeps the keys and values of earlier calls, so that a call that continues one costs one step. It
must not know stop ids.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache

from inference.backends.table import load
from inference.engine import Engine, Sampling

InferNextToken = Callable[[list[int], float, bool], int]


def infer_next_token(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
    """The next token of the default model: `tiny`, or the one that GPT_OSS_MODEL names."""
    return _default()(tokens, temperature, new_request)


def setup_model(model: str) -> InferNextToken:
    """Loads a model and returns its `infer_next_token`. Calls from several threads run one by one."""
    engine, thread = load(model), ThreadPoolExecutor(1, "infer_next_token")  # a caller may run an event loop

    def next_token(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
        return thread.submit(asyncio.run, _sampled(engine, tokens, temperature)).result()

    return next_token


@cache
def _default() -> InferNextToken:
    return setup_model(os.environ.get("GPT_OSS_MODEL", "tiny"))


async def _sampled(engine: Engine, tokens: list[int], temperature: float) -> int:
    sampling = Sampling(temperature=temperature, max_tokens=1, stop_token_ids=frozenset())
    async with aclosing(engine.generate(tokens, sampling)) as steps:
        [token] = [token async for step in steps for token in step.tokens]
    return token
