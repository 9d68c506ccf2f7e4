"""Carries a generation's tokens from the engine's thread to its reader in the event loop.

All tokens that wait when the reader looks are one step. It wakes the loop once for each time that the reader
waits, not once per token. It is bounded: an engine that finds it full pauses the generation.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

from inference.engine import Finish, InferenceError, Step, TokenLogprob

CAPACITY = 256
PromptScores = tuple[TokenLogprob | None, ...]


class Outbox:
    def __init__(self, on_room: Callable[[], None], capacity: int = CAPACITY) -> None:
        """Create it in the reader's event loop, which calls `on_room` after emptying a full outbox."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._lock = threading.Lock()
        self._on_room, self._capacity = on_room, capacity
        self._tokens: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._further: dict[str, Any] = {}  # fields of the next step
        self._created = time.monotonic()
        self._end: Finish | InferenceError | None = None
        self._reader_waits = False
        self.abandoned = False  # the reader has gone; the engine's thread checks between two tokens

    @property
    def is_full(self) -> bool:
        return len(self._tokens) >= self._capacity

    # The engine's thread ------------------------------------------------------------------------------

    def put(self, token: int, logprob: TokenLogprob | None = None, finish: Finish | None = None) -> None:
        with self._lock:
            self._tokens.append(token)
            if logprob is not None:
                self._logprobs.append(logprob)
            self._end = finish
            self._notify()

    def begun(self, cached_tokens: int) -> None:
        """The engine begins to compute the prompt; this many of its tokens were in the cache."""
        with self._lock:
            self._further |= {"cached_tokens": cached_tokens, "queued": time.monotonic() - self._created}

    def tried(self, accepted: int, rejected: int) -> None:
        """So many predicted tokens were right and wrong. Call it before the tokens arrive."""
        with self._lock:
            for name, count in (("accepted", accepted), ("rejected", rejected)):
                self._further[name] = self._further.get(name, 0) + count

    def set_prompt_scores(self, scores: PromptScores) -> None:
        """Call it before the first token: the reader receives both together."""
        with self._lock:
            self._further["prompt_logprobs"] = scores

    def end(self, end: Finish | InferenceError) -> None:
        """Ends without a token: nothing was left to sample, or it failed. Waiting tokens are read first."""
        with self._lock:
            if self._end is None:
                self._end = end
            self._notify()

    def _notify(self) -> None:
        if not self._reader_waits:
            return
        self._reader_waits = False
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:
            self.abandoned = True  # the loop is closed, so the reader is gone

    # The reader ---------------------------------------------------------------------------------------

    async def news(self) -> None:
        await self._wake.wait()

    def abandon(self) -> None:
        """The reader leaves: the engine need not go on."""
        self.abandoned = True
        self._on_room()

    def take(self) -> tuple[Step | None, Finish | InferenceError | None]:
        """All that waits, as one step, and the end, if it has come."""
        with self._lock:
            was_full = self.is_full
            tokens, logprobs, end = tuple(self._tokens), tuple(self._logprobs), self._end
            self._tokens.clear()
            self._logprobs.clear()
            finish = end if isinstance(end, Finish) else None
            if not tokens and finish is None:
                # Clear the event before setting the flag, so that no wake-up is lost.
                self._wake.clear()
                self._reader_waits = end is None
                return None, end
            further, self._further = self._further, {}
        if was_full:
            self._on_room()
        return Step(tokens, finish, logprobs or None, **further), end


async def steps_through(begin: Callable[[], Outbox]) -> AsyncGenerator[Step, None]:
    """Begin a generation, and yield its steps until it ends or the reader leaves. Raises what ends it."""
    outbox = begin()
    try:
        while True:
            step, end = outbox.take()
            if step is not None:
                yield step
            if isinstance(end, InferenceError):
                raise end
            if end is not None:
                return
            await outbox.news()
    finally:
        outbox.abandon()
