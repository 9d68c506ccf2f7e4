"""One step of the engine: the contract between the scheduler that plans it and the runner that computes it.

Takes, for each generation in the step, its tokens and the place of its keys and values; returns the sampled
tokens of each, or its own error. It must not know tensors: a runner makes them, on the CPU or with kernels
on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.engine import InferenceError, Sampling, TokenLogprob

PENDING = -1
"""In place of a token that the running step will sample for this slot. Only if a runner works ahead."""


@dataclass(frozen=True, slots=True)
class Sampled:
    token: int
    logprob: TokenLogprob | None = None


class Picker(Protocol):
    """The state of a generation's sampling; the runner makes it, the generation keeps it."""

    @property
    def sampling(self) -> Sampling: ...


@dataclass(frozen=True, slots=True)
class StepPart:
    """One generation's part in a step. A generation that decodes has one token, its newest; more if drafts
    follow it. A prompt has a chunk."""

    slot: int  # 0 ≤ slot < max_concurrent, fixed while the generation runs
    tokens: Sequence[int]
    start: int  # the position of the first token
    tables: Sequence[Sequence[int]]  # its blocks, for each kind of layer (the model's `windows`, in order)
    samples: int  # how many of the last tokens to sample after: 0 within a prompt, else 1 + drafts
    picker: Picker
    scored: Sequence[int] | None = None  # if the prompt is scored: the token after each of `tokens`
    guesses: int = 0  # how many tokens to guess after the last sampled one; the tables have room for them

    @property
    def wanted(self) -> int:
        """How many of the last rows need logits."""
        return self.samples if self.scored is None else len(self.tokens)


@dataclass(frozen=True, slots=True)
class Outcome:
    # None within a prompt, else one, and one more for each right draft.
    sampled: tuple[Sampled, ...] = ()
    scores: tuple[TokenLogprob, ...] = ()  # of the tokens `scored`
    error: InferenceError | None = None  # this generation alone failed, after these samples
    guesses: tuple[int, ...] = ()  # of the tokens after the last sampled one


def right_drafts(part: StepPart, outcome: Outcome) -> int:
    """How many of a part's drafts were sampled."""
    if part.samples <= 1:
        return 0
    drafts = part.tokens[1 - part.samples :]
    return sum(sample.token == draft for sample, draft in zip(outcome.sampled, drafts, strict=False))


class Flight(Protocol):
    """A launched step."""

    def outcomes(self) -> list[Outcome]:
        """Waits for the step; returns one outcome per part, in their order."""


class Runner(Protocol):
    """The model on its device. It owns the weights and the paged memory, and must not know requests."""

    @property
    def block_size(self) -> int: ...

    @property
    def ahead(self) -> int:
        """The number of steps that may be launched before reading an earlier one's outcomes; 0 on the CPU."""

    def picker(self, sampling: Sampling, prompt: Sequence[int] = ()) -> Picker:
        """The state of the sampling of a new generation after `prompt`."""

    def launch(self, parts: Sequence[StepPart]) -> Flight:
        """Starts a step. If it raises, the whole step failed; the same parts may be launched again."""

    def problem(self) -> str | None:
        """After a failed step: why no further step can succeed, as a sentence; None if one may."""

    def close(self) -> None: ...
