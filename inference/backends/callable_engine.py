"""Serves a user's function that samples the next token.

Takes an `infer_next_token(tokens, temperature, new_request) -> int` (or one without the last parameter) and
returns an `Engine`. The function runs on a thread of its own, one generation after the other: such functions
keep one conversation's cache, which tokens of another would evict every time.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from inference.backends.callable_worker import Worker
from inference.engine import (
    EngineFailed,
    EngineInfo,
    Finish,
    Sampling,
    Step,
    output_limit,
)
from inference.outbox import Outbox, steps_through

DEFAULT_CONTEXT = 131_072
PARAMETERS = 3
IGNORED = frozenset(
    {
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logprobs",
    }
)
"""How to pick a token, which the function decides. Other fields ask for particular tokens or lengths."""
_HONOURED = frozenset({"temperature", "min_tokens", "ignored_stop_ids"})


class CallableEngine:
    def __init__(
        self,
        infer_next_token: Callable[..., int],
        *,
        name: str = "custom",
        context_length: int = DEFAULT_CONTEXT,
        vocab_size: int = 201_088,
    ) -> None:
        self._next = infer_next_token
        self._passes_new_request = takes_new_request(infer_next_token)
        self._names_new_request = names_new_request(infer_next_token)
        self._worker = Worker(f"inference {name}")
        self._info = EngineInfo(
            name=name,
            context_length=context_length,
            vocab_size=vocab_size,
            description="A user's function that samples the next token.",
            honours=_HONOURED,
            ignores=IGNORED,
            takes_begun_calls=True,
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def active(self) -> int:
        return self._worker.active

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        return steps_through(lambda: self._begin(tokens, sampling))

    def _begin(self, tokens: Sequence[int], sampling: Sampling) -> Outbox:
        limit = output_limit(len(tokens), sampling, self._info)
        # Room for every token: a slow reader must not hold up the generations that wait after it.
        outbox = Outbox(self._worker.wake, capacity=limit + 1)
        self._worker.submit(_Call(self._checked, list(tokens), sampling, limit, outbox))
        return outbox

    async def check(self) -> None:
        """Raises `EngineFailed` if the function fails again and again."""
        await self._worker.failures.check(self.generate)

    async def close(self) -> None:
        await asyncio.to_thread(self._worker.close)

    def _checked(self, tokens: list[int], temperature: float, new_request: bool) -> int:
        if self._names_new_request:
            sampled = self._next(tokens, temperature, new_request=new_request)
        else:
            sampled = self._next(tokens, temperature, *((new_request,) if self._passes_new_request else ()))
        token = _as_token(sampled)
        if not 0 <= token < self._info.vocab_size:
            raise EngineFailed(
                f"The function returned the token {token}; token ids range from 0 to "
                f"{self._info.vocab_size - 1}."
            )
        return token


class _Call:
    """One generation: a job that calls the function once per round."""

    def __init__(
        self,
        infer: Callable[[list[int], float, bool], int],
        tokens: list[int],
        sampling: Sampling,
        limit: int,
        outbox: Outbox,
    ) -> None:
        self.outbox = outbox
        self._infer, self._tokens, self._sampling, self._left = infer, tokens, sampling, limit
        self._is_first = True
        self._sampled = 0
        self._stops = sampling.stop_token_ids - sampling.ignored_stop_ids

    def advance(self) -> bool:
        if self._left <= 0:
            self.outbox.end(Finish.LENGTH)
            return False
        # A copy: a function that keeps or changes its argument must not change the conversation.
        token = self._infer(list(self._tokens), self._sampling.temperature, self._is_first)
        self._is_first = False
        self._tokens.append(token)
        self._left -= 1
        self._sampled += 1
        finish = self._finish(token)
        self.outbox.put(token, finish=finish)
        return finish is None

    def _finish(self, token: int) -> Finish | None:
        # The function picks the token, so a stop id that must not end the generation is sampled past.
        if token in self._stops and self._sampled > self._sampling.min_tokens:
            return Finish.STOP
        return Finish.LENGTH if self._left == 0 else None


def _as_token(value: Any) -> int:
    """An int, or a value with `__index__` such as numpy's and torch's scalars; a bool is a mistake."""
    if isinstance(value, bool):
        raise _no_token(value)
    try:
        return int(value.__index__())
    except (AttributeError, TypeError, ValueError) as error:
        raise _no_token(value) from error


def _no_token(value: Any) -> EngineFailed:
    """Names the type, not the value: the value could be anything, and clients read this."""
    kind = "None" if value is None else f"a value of type {type(value).__name__}"
    return EngineFailed(f"The function returned {kind}; it must return one token id, an int.")


def names_new_request(function: Callable[..., Any]) -> bool:
    """Whether it takes `new_request` by its name only."""
    try:
        parameter = inspect.signature(function).parameters.get("new_request")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind is inspect.Parameter.KEYWORD_ONLY


def takes_new_request(function: Callable[..., Any]) -> bool:
    """Whether a third positional argument may be passed; a function that hides its parameters takes all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters):
        return True
    return sum(parameter.kind in positional for parameter in parameters) >= PARAMETERS
