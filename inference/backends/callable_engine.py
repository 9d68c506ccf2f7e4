"""Serves a user's function that samples the next token: `infer_next_token(tokens, temperature, new_request)`.

The last parameter may be missing. The function runs on a thread of its own, one generation after the other:
such functions keep one conversation's cache, which tokens of another would evict every time.
"""

from __future__ import annotations

import asyncio
import inspect
import operator
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inference.engine import (
    SAMPLING_FIELDS,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    Finish,
    Sampling,
    Step,
    output_limit,
)
from inference.failures import Failures, as_failure
from inference.outbox import Outbox, steps_through

DEFAULT_CONTEXT = 131_072
PARAMETERS = 3
HONOURED = frozenset({"temperature", "min_tokens", "ignored_stop_ids"})
# The function decides how to pick a token. A bias asks for particular tokens, and is refused.
IGNORED = SAMPLING_FIELDS - HONOURED - {"logit_bias"}


class CallableEngine:
    def __init__(
        self,
        infer_next_token: Callable[..., int],
        *,
        name: str = "custom",
        context_length: int = DEFAULT_CONTEXT,
        vocab_size: int = 201_088,
    ) -> None:
        self._infer = with_new_request(infer_next_token)
        self.info = EngineInfo(
            name=name,
            context_length=context_length,
            vocab_size=vocab_size,
            description="A user's function that samples the next token.",
            honours=HONOURED,
            ignores=IGNORED,
            takes_begun_calls=True,
        )
        self._changed = threading.Condition()
        self._calls: deque[_Call] = deque()  # the first one runs
        self._closing = False
        self._failures = Failures()  # of single tokens
        # A daemon, so that a process that ends does not wait for a model.
        self._thread = threading.Thread(target=self._run, name=f"inference {name}", daemon=True)

    @property
    def active(self) -> int:
        with self._changed:
            return sum(not call.outbox.abandoned for call in self._calls)

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        return steps_through(lambda: self._begin(tokens, sampling))

    def _begin(self, tokens: Sequence[int], sampling: Sampling) -> Outbox:
        limit = output_limit(len(tokens), sampling, self.info)
        # Room for every token: a slow reader must not hold up the generations that wait after it.
        outbox = Outbox(lambda: None, capacity=limit + 1)
        with self._changed:
            if self._closing:
                raise EngineClosed("The engine is closed.")
            if not self._thread.is_alive():
                self._thread.start()
            self._calls.append(_Call(list(tokens), sampling, limit, outbox))
            self._changed.notify()
        return outbox

    async def check(self) -> None:
        await self._failures.check(self.generate)

    async def close(self) -> None:
        """Ends every generation with `EngineClosed`, after the token that is being sampled."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    # The thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._closing)
                if self._closing:
                    break
            self._generate(self._calls[0])
            if not self._closing:
                with self._changed:
                    self._calls.popleft()
        for call in self._calls:
            call.outbox.end(EngineClosed("The engine was closed while it generated."))
        self._calls.clear()

    def _generate(self, call: _Call) -> None:
        sampling, outbox = call.sampling, call.outbox
        # The function picks the token, so a stop id that must not end the generation is sampled past.
        stops = sampling.stop_token_ids - sampling.ignored_stop_ids
        try:
            for count in range(1, call.limit + 1):
                if self._closing or outbox.abandoned:
                    return
                # A copy: a function that keeps or changes its argument must not change the conversation.
                token = self._token(list(call.tokens), sampling.temperature, count == 1)
                self._failures.succeeded()
                call.tokens.append(token)
                if token in stops and count > sampling.min_tokens:
                    outbox.put(token, finish=Finish.STOP)
                    return
                outbox.put(token, finish=Finish.LENGTH if count == call.limit else None)
            outbox.end(Finish.LENGTH)  # also where no token is wanted
        except BaseException as error:
            # A user's function that calls sys.exit() must end neither this thread nor other generations.
            self._failures.failed()
            failure = as_failure(error)
            # Without its frames, which would keep the function's cache alive.
            outbox.end(failure.with_traceback(None))

    def _token(self, tokens: list[int], temperature: float, new_request: bool) -> int:
        token = _as_token(self._infer(tokens, temperature, new_request))
        if not 0 <= token < self.info.vocab_size:
            known = f"token ids range from 0 to {self.info.vocab_size - 1}"
            raise EngineFailed(f"The function returned the token {token}; {known}.")
        return token


@dataclass(slots=True)
class _Call:
    """One generation."""

    tokens: list[int]
    sampling: Sampling
    limit: int
    outbox: Outbox


def with_new_request(function: Callable[..., Any]) -> Callable[[list[int], float, bool], Any]:
    """The function with a third positional argument, however it takes `new_request`, if it does. A function
    that hides its parameters takes all."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return function
    named = parameters.get("new_request")
    if named is not None and named.kind is inspect.Parameter.KEYWORD_ONLY:
        return lambda tokens, temperature, new: function(tokens, temperature, new_request=new)
    kinds = [parameter.kind for parameter in parameters.values()]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(kind in positional for kind in kinds)
    takes = inspect.Parameter.VAR_POSITIONAL in kinds or count >= PARAMETERS
    return function if takes else lambda tokens, temperature, _: function(tokens, temperature)


def _as_token(value: Any) -> int:
    """An int, or a value such as numpy's and torch's scalars; a bool is a mistake. Clients read the error: it
    names the type, not the value, which could be anything."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except (TypeError, ValueError) as error:
        kind = "None" if value is None else f"a value of type {type(value).__name__}"
        raise EngineFailed(f"The function returned {kind}; it must return one token id, an int.") from error
