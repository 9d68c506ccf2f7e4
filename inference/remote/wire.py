"""What a wire offers to the engine: how its server is asked for tokens, and what it can do."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from inference.engine import Sampling, TokenLogprob
from inference.grammar import Notation
from inference.remote.connection import Caller, Json


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a generation, which may need several."""

    sampling: Sampling
    sampled: int  # tokens of this generation that earlier requests gave; they are the end of the prompt
    limit: int  # at most so many more; at least 1
    grammar: str | None = None  # of what is sampled now, in the wire's notation
    ends: frozenset[int] = frozenset()  # where the server must stop, and the engine may ask for more

    def seed(self, further: int = 0) -> int | None:
        """Of the request that continues after `further` more tokens.

        Another seed for each request: the same one would repeat the same choices.
        """
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
        ...


async def pieces_of(
    batches: AsyncGenerator[list[Json], None], reader: EventReader
) -> AsyncGenerator[Piece, None]:
    """One piece for the events that arrived together: a busy server gets fewer, larger ones.

    What precedes an event that cannot be read is yielded before its error is raised.
    """
    async for events in batches:
        found: list[Piece] = []
        failure: Exception | None = None
        for event in events:
            try:
                piece = reader.read(event)
            except Exception as error:
                failure = error
                break
            if piece.tokens:
                found.append(piece)
            if reader.is_over:
                break
        if found:
            yield found[0] if len(found) == 1 else _joined(found)
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


class Wire(Protocol):
    kind: ClassVar[str]  # the prefix of its names
    title: ClassVar[str]
    honours: ClassVar[frozenset[str]]
    ignores: ClassVar[frozenset[str]]
    health: ClassVar[str]  # a path that answers 200 while the server can generate
    notation: ClassVar[Notation | None]  # how it takes grammars

    caller: Caller

    def __init__(self, caller: Caller) -> None: ...

    @staticmethod
    async def recognises(caller: Caller) -> bool:
        """Whether this kind of server listens there. Raises `InferenceError` if none does."""
        ...

    async def facts(self) -> Facts:
        """Raises `InferenceError` with a sentence that states what to change on the server."""
        ...

    async def tokenised(self, text: str) -> list[int]:
        """The server's tokens of a text in which special tokens are spelt out."""
        ...

    def sample(self, prompt: Sequence[int], ask: Ask) -> AsyncGenerator[Piece, None]:
        """Samples up to `ask.limit` tokens after `prompt`. It may end before: the engine asks for the rest.

        Closing it cancels the request.
        """
        ...

    async def read(self, prompt: Sequence[int]) -> None:
        """Reads a prompt into the server's cache and samples nothing that anybody sees."""
        ...
