"""The engine contract: token ids in, sampled token ids out.

Every engine (the local model, the scripted one, a user's callable, a remote server) is an `Engine`.
The server knows nothing else of inference. An engine must not know Harmony, HTTP or items: it sees token ids
and stops at the stop ids of its `Sampling`.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol, runtime_checkable

from inference.grammar import Grammar, Notation

SAMPLING_FIELDS = frozenset({
    "temperature", "top_p", "top_k", "min_p", "seed", "logit_bias", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "min_tokens", "ignored_stop_ids", "logprobs", "alternatives",
})  # fmt: skip
"""The fields of `Sampling` that shape the distribution; `EngineInfo.honours` lists those an engine obeys."""


class Finish(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # the engine sampled a stop id (the last token), or reached the end of a script
    LENGTH = "length"  # the engine sampled max_tokens, or the context is full


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to pick tokens. Temperature 0 is greedy; every other field is neutral by default."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset({200002, 200012, 199999})
    max_tokens: int | None = None  # 0: sample nothing, only read the prompt into the cache
    # Before `min_tokens` no stop id ends the generation, and those of `ignored_stop_ids` never do. An engine
    # that has a distribution does not sample them, unless the grammar leaves nothing else.
    min_tokens: int = 0
    ignored_stop_ids: frozenset[int] = frozenset()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    # Divides the positive logits of tokens that the prompt or the output has, and multiplies negative ones.
    repetition_penalty: float = 1.0
    logprobs: int | None = None  # None: none; k: the sampled token's and those of the k likeliest
    # As many tokens as `logprobs`, which are reported in place of the likeliest. An engine may report their
    # log-probabilities up to a common summand.
    alternatives: tuple[int, ...] = ()
    prompt_logprobs: int | None = None  # the same for the prompt's tokens; only if the engine scores prompts
    # The last tokens of the prompt, if an earlier generation with this sampling sampled them and this one
    # continues it: its random numbers, its penalties and its grammar follow theirs. An
    # engine without any of these may ignore it.
    continued: tuple[int, ...] = ()
    grammar: Grammar | None = None  # which tokens may be sampled; only if the engine enforces grammars
    # These change no answer, and an engine may ignore them. Generations share a cache only if they have the
    # same salt. If not all can run, the lowest priority starts first; within one, owners have equal shares.
    cache_salt: str | None = None
    predicted: tuple[int, ...] = ()  # what the output is likely to be, in the main
    owner: str = ""
    priority: int = 0
    # By header: names under which other programs' engines, routers and traces know the request.
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """The log-probability of a token, and the likeliest alternatives as (id, logprob), best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None  # among all tokens, from 1; only for tokens of a prompt


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens that an engine has sampled since the last step.

    Usually one token; several when an engine runs ahead of its reader (speculation, a remote server, a
    script). The stop token is part of `tokens`. Only the last step has `finish`; it may be empty.
    """

    tokens: tuple[int, ...]
    finish: Finish | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None  # one per token, if requested
    cached_tokens: int = 0  # prompt tokens served from a cache; set on the first step that knows them
    # On the first step, if requested: one per prompt token; None for the first, which has no context.
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    queued: float | None = None  # on the first step, if known: seconds until the engine began to compute
    # Tokens of `Sampling.predicted` that were tried since the last step, and were right or wrong.
    accepted: int = 0
    rejected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What a server needs to know of an engine, whatever its kind."""

    name: str  # the default name to serve it under, e.g. "gpt-oss-20b"
    context_length: int
    vocab_size: int = 201_088
    description: str = ""
    # The checkpoint's own (generation_config.json), for requests that set no value.
    defaults: Sampling = field(default_factory=Sampling)
    honours: frozenset[str] = SAMPLING_FIELDS
    # Fields that it cannot obey and that clients nevertheless always send: a server drops them and states so.
    ignores: frozenset[str] = frozenset()
    # Whether a server begins a call that a request forces: for engines that continue any prompt, but obey no
    # grammar.
    takes_begun_calls: bool = False
    enforces_grammar: bool = False  # whether it obeys `Sampling.grammar`
    # How grammars must be written for it, if it takes them as text. It obeys those that can be written so; a
    # server checks what they leave free.
    notation: Notation | None = None
    # Whether it obeys `Sampling.prompt_logprobs`. The scores of such an engine are a distribution's.
    scores_prompts: bool = False
    replays: bool = False  # its output ignores the prompt: a turn cannot be interrupted and resumed
    is_demo: bool = False  # the embedded model, which can do only what it was trained to show
    loops: bool = False  # the model often repeats itself without end, which a server should limit
    plan: str = ""  # how its memory is divided, for the operator


class Engine(Protocol):
    """Generates tokens. One engine serves any number of concurrent generations, from one event loop."""

    @property
    def info(self) -> EngineInfo: ...

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        """Samples a continuation of `tokens`.

        The first `anext` raises `ContextOverflow` if the prompt leaves no room for one token. Closing the
        generator (`aclose`) cancels: its slot is free within one token. Never blocks the event loop.
        """

    async def close(self) -> None:
        """Frees everything. Running generations end with `EngineClosed`."""


@runtime_checkable
class Shared(Protocol):
    """An engine may also offer this: it limits how many generations it accepts, and counts its work."""

    def check_room(self) -> None:
        """Raises `EngineBusy` if it would refuse a generation now."""

    def measures(self) -> Mapping[str, float]:
        """By name: current numbers, and counts since the start."""


@runtime_checkable
class Checked(Protocol):
    """An engine may also offer this: it finds out whether it can generate."""

    async def check(self) -> None:
        """Raises `EngineFailed`, with a sentence, if it cannot generate. A server calls it every few seconds.
        It may sample a token if generations have failed."""


State = Literal["unloaded", "loading", "loaded", "failed"]


@runtime_checkable
class Loadable(Protocol):
    """An engine may also offer this: it is loaded when a generation needs it."""

    state: State

    async def load(self) -> None:
        """Raises `EngineFailed` if it cannot be loaded."""

    async def unload(self) -> None:
        """Once nothing of it runs."""


class InferenceError(Exception):
    """The root of all errors that this package raises on purpose.

    InferenceError
    ├── ModelNotFound       no such model: an unknown name, a missing folder, a repo that cannot be fetched
    ├── CheckpointError     a checkpoint or script that does not fit; names the tensor or turn, and why
    ├── ContextOverflow     the prompt does not leave room for one token
    ├── EngineFailed        the engine broke while it generated
    │   └── GrammarFailed   one generation's grammar cannot be followed further; others go on
    ├── EngineBusy          too many requests wait already; later there may be room
    └── EngineClosed        the engine was closed while it generated
    """


class ModelNotFound(InferenceError):
    pass


class CheckpointError(InferenceError):
    pass


class ContextOverflow(InferenceError):
    def __init__(self, prompt_tokens: int, context_length: int) -> None:
        super().__init__(
            # Clients recognise this error by these words, whatever its code.
            f"This model's maximum context length is {context_length} tokens. The prompt has "
            f"{prompt_tokens} tokens, and at least one must be left for the answer."
        )
        self.prompt_tokens = prompt_tokens
        self.context_length = context_length


class EngineFailed(InferenceError):
    pass


class GrammarFailed(EngineFailed):
    pass


class EngineBusy(InferenceError):
    def __init__(self, waiting: int | None, retry_after: float, message: str | None = None) -> None:
        """`waiting` is None, with a message, where another program refuses."""
        super().__init__(message or f"{waiting} requests are already waiting, which is the limit.")
        self.waiting = waiting
        self.retry_after = retry_after  # seconds


class EngineClosed(InferenceError):
    pass


def output_limit(prompt_tokens: int, sampling: Sampling, info: EngineInfo) -> int:
    """How many tokens a generation may sample. Raises `ContextOverflow` if there is no room for one."""
    room = info.context_length - prompt_tokens
    if room < 1:
        raise ContextOverflow(prompt_tokens, info.context_length)
    return room if sampling.max_tokens is None else min(room, sampling.max_tokens)
