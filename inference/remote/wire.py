"""What a wire offers to the engine: how one kind of server is asked for tokens, and what it can do."""

import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from inference.engine import SAMPLING_FIELDS, EngineFailed, Sampling, TokenLogprob
from inference.grammar import Notation
from inference.remote.connection import Caller, Json, Refused


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a generation, which may need several."""

    sampling: Sampling
    sampled: int  # tokens of this generation that earlier requests gave; they are the end of the prompt
    limit: int  # the most further tokens; at least 1
    grammar: str | None = None  # of what is sampled now, in the wire's notation
    ends: frozenset[int] = frozenset()  # where the server must stop, and the engine may ask for more

    @property
    def least(self) -> int:
        """How many of these tokens must not end the generation."""
        return min(max(0, self.sampling.min_tokens - self.sampled), self.limit)

    @property
    def stops(self) -> list[int]:
        return sorted((self.sampling.stop_token_ids | self.ends) - self.sampling.ignored_stop_ids)

    def biases(self, ban: float) -> dict[str, float]:
        """By token; `ban` is that of ids which must not be sampled."""
        biases = {str(token): bias for token, bias in self.sampling.logit_bias.items()}
        return biases | {str(token): ban for token in self.sampling.ignored_stop_ids}

    def fields(self, *names: str) -> dict[str, Any]:
        """The sampling's fields of these names."""
        return {name: getattr(self.sampling, name) for name in names}

    def seed(self, further: int = 0) -> int | None:
        """The seed of the request that continues after `further` more tokens. Another seed for each request:
        the same one would repeat the same choices."""
        seed, sampled = self.sampling.seed, self.sampled + further
        if seed is None:
            return None
        return random.Random(f"{seed} {sampled}").getrandbits(31)


@dataclass(frozen=True, slots=True)
class Piece:
    """Sampled tokens of one request, with their logprobs if requested."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    cached_tokens: int = 0


class EventReader(Protocol):
    """Reads the events of one streamed request."""

    is_over: bool  # whether the last event was read

    def read(self, event: Json) -> Piece:
        """The event's tokens; there may be none."""


async def merged_pieces(
    batches: AsyncGenerator[list[Json], None], reader: EventReader
) -> AsyncGenerator[Piece, None]:
    """One piece for the events that arrived together: a busy server gets fewer, larger ones. What precedes an
    event that cannot be read is yielded before its error is raised."""
    async for events in batches:
        pieces: list[Piece] = []
        failure: Exception | None = None
        for event in events:
            try:
                piece = reader.read(event)
            except Exception as error:
                failure = error
                break
            if piece.tokens:
                pieces.append(piece)
            if reader.is_over:
                break
        if pieces:
            yield pieces[0] if len(pieces) == 1 else _joined(pieces)
        if failure is not None:
            raise failure
        if reader.is_over:
            return


def _joined(pieces: Sequence[Piece]) -> Piece:
    logprobs = None
    if pieces[0].logprobs is not None:
        logprobs = tuple(score for piece in pieces for score in piece.logprobs or ())
    tokens = tuple(token for piece in pieces for token in piece.tokens)
    return Piece(tokens, logprobs, max(piece.cached_tokens for piece in pieces))


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server states of its model."""

    name: str
    context_length: int
    vocab_size: int | None  # None: it does not state it
    about: str = ""
    ignores: frozenset[str] = frozenset()  # fields that it was not started to obey


class Wire(ABC):
    """A subclass knows one kind of server: how to recognise it, what it can do, and how to request tokens."""

    kind: ClassVar[str]  # the prefix of its names, without the colon
    title: ClassVar[str]
    notation: ClassVar[Notation | None] = None  # how it takes grammars
    honours: ClassVar[frozenset[str]] = SAMPLING_FIELDS
    ignores: ClassVar[frozenset[str]] = frozenset()
    health: ClassVar[str] = "/health"  # a path that answers 200 while the server can generate
    known_by: ClassVar[tuple[str, str]]  # a path, and a key of the object that only this kind answers there

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    @classmethod
    async def recognises(cls, caller: Caller) -> bool:
        """Whether this kind of server listens there. Raises `InferenceError` if none does."""
        path, key = cls.known_by
        try:
            return key in await caller.get(path)
        except Refused:
            return False

    @abstractmethod
    async def facts(self) -> Facts:
        """Raises `InferenceError` with a sentence that states what to change on the server."""

    @abstractmethod
    async def tokenised(self, text: str) -> list[int]:
        """The server's tokens of a text in which special tokens are spelt out."""

    @abstractmethod
    def sample(self, prompt: Sequence[int], ask: Ask) -> AsyncGenerator[Piece, None]:
        """Up to `ask.limit` tokens: the engine asks for the rest. Closing it cancels the request."""

    @abstractmethod
    async def read(self, prompt: Sequence[int]) -> None:
        """Reads a prompt into the server's cache and samples nothing that a client sees."""

    def cut_off(self) -> EngineFailed:
        return EngineFailed(f"The engine at {self.caller.url} ended an answer in the middle.")


class ListedWire(Wire):
    """What servers with OpenAI's list of models share."""

    _model = ""

    async def _listed(self) -> tuple[str, int]:
        """The name of the model that generates, and its context's length."""
        models = await self.caller.get("/v1/models")
        try:
            model = next(listed for listed in models["data"] if listed.get("max_model_len"))
            self._model, context = str(model["id"]), int(model["max_model_len"])
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            raise self.not_described() from error
        return self._model.rstrip("/").rpartition("/")[2], context

    def not_described(self) -> EngineFailed:
        return EngineFailed(
            f"{self.caller.url} does not describe its model as {self.title} does. Is it another server?"
        )

    async def tokenised(self, text: str) -> list[int]:
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return list((await self.caller.post("/tokenize", body))["tokens"])
