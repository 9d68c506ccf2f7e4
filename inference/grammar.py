"""What an engine sees of a grammar: which tokens may come next.

An engine that enforces grammars (`EngineInfo.enforces_grammar`) starts the one of `Sampling.grammar` once per
generation and requests a mask before every token. An engine of another program takes the grammar as a text,
if it can be written in the notation that it reads. An engine must not know what a grammar is made of.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Notation(StrEnum):
    """How a grammar is written down. In both, single tokens are named by their ids."""

    GBNF = "gbnf"  # llama.cpp's
    XGRAMMAR = "xgrammar"  # the EBNF of the library xgrammar


class GrammarState(Protocol):
    """The position of one generation in its grammar. Used by one thread at a time."""

    def mask(self) -> bytes:
        """One bit per token id, the lowest bit of the first byte for id 0: 1 if the token may come next. Ids
        beyond its end may not. Raises `InferenceError` if the grammar cannot continue."""

    def accept(self, token: int) -> None:
        """Records a sampled token. Raises `InferenceError` if it was not allowed."""


@runtime_checkable
class BatchedState(GrammarState, Protocol):
    """A state whose class computes the masks of many states in one call, for engines with large batches."""

    @classmethod
    def masks(cls, states: Sequence[GrammarState]) -> list[bytes | Exception]:
        """The mask of each state, or the error that its `mask` would raise."""


class Grammar(Protocol):
    """Any number of generations may share one, from any thread."""

    def start(self) -> GrammarState: ...


class Spelling(Protocol):
    """The text of a grammar as one generation goes on. Used by one thread at a time."""

    def take(self, tokens: Iterable[int]) -> None:
        """Records sampled tokens. Cheap: what they mean is computed when the rest is requested."""

    def take_fitting(self, tokens: Sequence[int]) -> int:
        """Records the tokens up to the first that does not fit, and returns how many those are. All of them,
        if the ones before did not fit: then nothing is left that could be followed."""

    def rest(self, notation: Notation) -> str | None:
        """What is left of the grammar; None if it cannot be written here. Slow for long outputs."""

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that the text leaves out. An engine must allow them where it is complete, and end there."""

    @property
    def is_inside_character(self) -> bool:
        """Whether the tokens end in the middle of a character: then `rest` is about the next token alone."""


@runtime_checkable
class SpelledGrammar(Grammar, Protocol):
    """A grammar that can be written down."""

    @property
    def is_usual(self) -> bool:
        """Whether a gpt-oss model hardly ever leaves it by itself. An engine may then sample without it, and
        enforce it from the first token on that does not fit."""

    def spelling(self) -> Spelling: ...


def compute_masks(states: Sequence[GrammarState]) -> list[bytes | Exception]:
    """The mask of each state, or the error that it raised; computed together where the states allow it."""
    if len(states) > 1 and isinstance(states[0], BatchedState) and len(set(map(type, states))) == 1:
        return states[0].masks(states)
    return [_mask_of(state) for state in states]


def _mask_of(state: GrammarState) -> bytes | Exception:
    try:
        return state.mask()
    except Exception as error:
        # A grammar is foreign code: what it raises fails its own generation, not the batch.
        return error
