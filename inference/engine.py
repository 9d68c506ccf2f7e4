"""The engine contract: token ids in, sampled token ids out.

Every engine (our own model, the scripted one, a user's callable, later a remote server) is an `Engine`.
The server knows nothing else of inference, and an engine knows nothing of Harmony, HTTP or items: it sees
token ids and stops at the ids it was told to stop at.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from inference.grammar import Grammar

SAMPLING_FIELDS = frozenset(
    {
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "logit_bias",
        "presence_penalty",
        "frequency_penalty",
        "logprobs",
    }
)
"""The fields of `Sampling` that shape the distribution; `EngineInfo.honours` says which an engine obeys."""


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # a stop id was sampled (it is the last token), or the engine had nothing more to say
    LENGTH = "length"  # max_tokens were sampled, or the context is full


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to pick tokens. Temperature 0 is greedy; the neutral value of every other field is its default."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset({200002, 200012, 199999})
    max_tokens: int | None = None  # 0: sample nothing, only read the prompt into what cache there is
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logprobs: int | None = None  # None: none; k: the sampled token's and those of the k likeliest
    prompt_logprobs: int | None = None  # the same of the prompt's tokens; only for engines that score prompts
    grammar: Grammar | None = None  # what may be sampled; only for engines that enforce it
    # These two change no answer. What one generation leaves in a cache serves others of the same salt only;
    # of those that wait, the one with the lowest priority begins first. An engine may know neither.
    cache_salt: str | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a sampled token, and the likeliest alternatives as (id, logprob), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What an engine has sampled since the last step.

    Usually one token; several when an engine runs ahead of its reader (speculation, a remote server, a
    script). The stop token is part of `tokens`. The last step, and only that, has `finish`; it may be empty.
    """

    tokens: tuple[int, ...]
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None  # one per token where asked for
    cached_tokens: int = 0  # prompt tokens served from a cache; told on the first step
    # On the first step, where asked for: one per prompt token, the first of which nothing comes before.
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What a server needs to know of an engine, without asking which kind it is."""

    name: str  # the name it is served under by default, e.g. "gpt-oss-20b"
    context_length: int
    vocab_size: int = 201_088
    description: str = ""
    temperature: float = 1.0  # the checkpoint's own defaults (generation_config.json), used where
    top_p: float = 1.0  # a request is silent
    honours: frozenset[str] = SAMPLING_FIELDS
    enforces_grammar: bool = False  # whether `Sampling.grammar` is obeyed
    # Whether `Sampling.prompt_logprobs` is obeyed. The scores of such an engine are a distribution's, and its
    # next token depends on the prompt alone, so that beams can be searched.
    scores_prompts: bool = False
    replays: bool = False  # says what it has, whatever comes before: a turn cannot be broken off and resumed
    plan: str = ""  # what its memory is divided into, for who starts it


class Engine(Protocol):
    """Generates. One engine serves any number of concurrent generations, from one event loop."""

    @property
    def info(self) -> EngineInfo: ...

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        """Sample a continuation of `tokens`.

        The first `anext` raises `ContextOverflow` when the prompt leaves no room for one token. Closing the
        generator (`aclose`) cancels: its slot is free within one token. Never blocks the event loop.
        """
        ...

    async def close(self) -> None:
        """Free everything. Generations under way end with `EngineClosed`."""
        ...


@runtime_checkable
class Shared(Protocol):
    """What an engine may offer beside: it bounds what it takes on, and counts what it does."""

    def check_room(self) -> None:
        """Raises `EngineBusy` where a generation that came now would be turned away."""
        ...

    def measures(self) -> Mapping[str, float]:
        """By name: what is under way, and what was counted since the start."""
        ...


class InferenceError(Exception):
    """The root of all that this package raises on purpose.

    InferenceError
    ├── ModelNotFound       no such model: an unknown name, a missing folder, a repo that cannot be fetched
    ├── CheckpointError     a checkpoint or script that does not fit; says which tensor or turn, and how
    ├── ContextOverflow     the prompt does not leave room for one token
    ├── EngineFailed        the engine broke while it generated
    ├── EngineBusy          too many wait already; later there may be room
    └── EngineClosed        the engine was closed while it generated
    """


class ModelNotFound(InferenceError):
    pass


class CheckpointError(InferenceError):
    pass


class ContextOverflow(InferenceError):
    def __init__(self, prompt_tokens: int, context_length: int) -> None:
        super().__init__(
            # In the words by which clients know this error, whatever its code.
            f"This model's maximum context length is {context_length} tokens. The prompt has "
            f"{prompt_tokens} tokens, and at least one must be left for the answer."
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length


class EngineFailed(InferenceError):
    pass


class EngineBusy(InferenceError):
    def __init__(self, waiting: int, retry_after: float) -> None:
        super().__init__(f"{waiting} requests wait already, as many as may.")
        self.waiting = waiting
        self.retry_after = retry_after  # seconds


class EngineClosed(InferenceError):
    pass
