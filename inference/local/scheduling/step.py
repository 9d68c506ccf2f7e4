"""One step of the engine, as the scheduler asks for it and a runner carries it out.

In goes, for each generation that takes part, which tokens to take in and where its keys and values go; out
comes what was sampled for each, or the error that it alone failed with. No tensor is seen here: a runner
makes them, on the CPU or with kernels on a GPU.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.engine import EngineFailed, InferenceError, Sampling, TokenLogprob

logger = logging.getLogger(__name__)

PENDING = -1
"""As a token: the one that the step under way samples for this slot. Only where a runner works ahead."""


@dataclass(frozen=True, slots=True)
class Sampled:
    token: int
    logprob: TokenLogprob | None = None


class Picker(Protocol):
    """What a generation's sampling remembers; made by the runner, kept by the generation."""

    @property
    def sampling(self) -> Sampling: ...


@dataclass(frozen=True, slots=True)
class Part:
    """One generation's part in a step.

    A generation that decodes has one token, its newest; more if drafts follow it. A prompt has a chunk.
    """

    slot: int  # 0 ≤ slot < max_concurrent, the generation's as long as it runs
    tokens: Sequence[int]
    start: int  # the position of the first of them
    tables: Sequence[Sequence[int]]  # its blocks, for each kind of layer (the model's `windows`, in order)
    samples: int  # after how many of the tokens, the last ones, one is sampled: 0 amid a prompt, 1 + drafts
    picker: Picker
    scored: Sequence[int] | None = None  # of a prompt that is scored: for each of `tokens` the one after it


@dataclass(frozen=True, slots=True)
class Outcome:
    sampled: tuple[
        Sampled, ...
    ] = ()  # none amid a prompt, else one, and one more for each draft that was right
    scores: tuple[TokenLogprob, ...] = ()  # of the tokens `scored`, as many alternatives as the sampling asks
    error: InferenceError | None = None  # this generation alone failed, after what was sampled


class Flight(Protocol):
    """A step under way."""

    def outcomes(self) -> list[Outcome]:
        """Waits for it. One per part, in their order."""
        ...


class Runner(Protocol):
    """The model on its device: it owns the weights and the paged memory, and knows nothing of requests."""

    @property
    def block_size(self) -> int: ...

    @property
    def ahead(self) -> int:
        """How many steps may be launched before the outcomes of an earlier one are read; 0 on the CPU."""
        ...

    def picker(self, sampling: Sampling) -> Picker:
        """The state of a new generation's sampling."""
        ...

    def launch(self, parts: Sequence[Part]) -> Flight:
        """Starts a step. What it raises failed as a whole; the same parts may be launched again."""
        ...

    def close(self) -> None: ...


def failure_of(error: Exception) -> EngineFailed:
    """What clients are told of a defect. Only the log has its text, which may hold secrets."""
    logger.error("A generation failed.", exc_info=error)
    return EngineFailed(f"The generation failed with {type(error).__name__}; the log has more.")
