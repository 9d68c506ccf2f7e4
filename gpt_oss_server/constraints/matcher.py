"""Compiles grammars of Lark text, in which `<[200005]>` stands for a token, to the form that engines enforce.

llguidance is imported on first use, so that a server without it runs and refuses only what needs it. It must
not know Harmony's messages.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.harmony.encoding import ENDOFTEXT, FIRST_SPECIAL, RETURN, VOCABULARY_SIZE, Encoding
from inference.engine import EngineFailed, GrammarFailed
from inference.grammar import GrammarState
from tools.extras import how_to_install

_CHUNK = 20_000
# Texts for which masks are prepared: without them a mask in free text takes 2 ms, with them 0.1. Of the
# library's own four, the other two make creation a third longer and no mask faster.
_SLICES = (r'[^"\\\x00-\x1F\x7F]{1,10}', r'[^"\\\x00-\x1F\x7F]{1,30}')
_MOST_ITEMS = 200_000  # of one mask, for which an object with 400 optional properties needs 150,000
_MASK_BYTES = 4 * -(-VOCABULARY_SIZE // 32)


class GrammarError(Exception):
    """llguidance refuses a grammar; the message is its first line."""


class GrammarsMissing(Exception):
    """llguidance is not installed or does not load; the message explains what to do."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompiledGrammar:
    """Implements `inference.grammar.Grammar`."""

    matcher: Any

    def start(self) -> MatcherState:
        return MatcherState(self.matcher.deep_copy())

    def after(self, tokens: Sequence[int]) -> CompiledGrammar:
        """The grammar of what may follow the tokens; raises `GrammarError` if they do not fit."""
        matcher = self.matcher.deep_copy()
        if not matcher.consume_tokens(list(tokens)):
            raise GrammarError("The tokens do not fit the grammar.")
        return CompiledGrammar(matcher)


class MatcherState:
    """Implements `inference.grammar.BatchedState`."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def mask(self) -> bytes:
        mask: bytes = self._matcher.compute_bitmask()
        if self._matcher.is_error():
            raise self._failure()
        return mask

    @classmethod
    def masks(cls, states: Sequence[GrammarState]) -> list[bytes | Exception]:
        """Computed on llguidance's threads: masks made one by one release Python's lock each time."""
        own = [state for state in states if isinstance(state, MatcherState)]
        rows = bytearray(len(own) * _MASK_BYTES)
        place = ctypes.addressof(ctypes.c_char.from_buffer(rows)) if own else 0
        jobs = [(state._matcher, row) for row, state in enumerate(own)]
        _executor().unsafe_compute_mask_ptr(jobs, place, _MASK_BYTES, len(own))
        masks = [bytes(rows[at : at + _MASK_BYTES]) for at in range(0, len(rows), _MASK_BYTES)]
        pairs = zip(own, masks, strict=True)
        return [state._failure() if state._matcher.is_error() else mask for state, mask in pairs]

    def _failure(self) -> EngineFailed:
        why = _first_line(self._matcher)
        problem = f"The request's schemas and grammars cannot be followed further: {why}."
        return GrammarFailed(f"{problem} Allow fewer properties, cases or words in one place.")

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            if "doesn't satisfy" not in self._matcher.get_error():
                raise self._failure()
            raise EngineFailed(f"The request's grammar does not allow the token {token} here.")

    def is_accepting(self) -> bool:
        return bool(self._matcher.is_accepting())


class Grammars:
    """Compiles grammars. One for the process: creating it takes half a second, without Python's lock."""

    def __init__(self, encoding: Encoding) -> None:
        try:
            import llguidance
        except ImportError as error:
            raise GrammarsMissing(f"Grammars need llguidance. {how_to_install(error)}") from None
        self._library: Any = llguidance
        self._limits = llguidance.LLParserLimits(verbose_errors=False, step_max_items=_MOST_ITEMS)
        vocabulary, make = _Vocabulary(encoding), self._library.LLTokenizer
        self._tokenizer = make(vocabulary, eos_token=[ENDOFTEXT], slices=list(_SLICES))

    def compile(self, lark: str) -> CompiledGrammar:
        matcher = self._library.LLMatcher(self._tokenizer, lark, log_level=0, limits=self._limits)
        if matcher.is_error():
            raise GrammarError(_first_line(matcher))
        return CompiledGrammar(matcher)

    def misfit(self, grammar: CompiledGrammar, text: str) -> str | None:
        """What of the text does not fit, from there to its end; None if the whole text is in the grammar."""
        matcher, tokens = grammar.matcher.deep_copy(), self._tokenizer.tokenize_str(text)
        fitting = matcher.try_consume_tokens(tokens)
        if fitting == len(tokens) and matcher.is_accepting():
            return None
        return str(self._tokenizer.decode_str(tokens[fitting:]))

    def matches(self, grammar: CompiledGrammar, text: str) -> bool:
        """Whether the whole text is in the grammar."""
        return self.misfit(grammar, text) is None

    def problem(self, lark: str) -> str | None:
        """What is wrong with a grammar, checked without the vocabulary; None if nothing is."""
        problem = self._library.LLMatcher.validate_grammar(lark, limits=self._limits)
        return None if not problem or problem.startswith("WARNING") else str(problem)


class _Vocabulary:
    """The vocabulary in the form that llguidance requires."""

    is_tokenizer_wrapper = True
    bos_token_id = None
    eos_token_id = ENDOFTEXT

    def __init__(self, encoding: Encoding) -> None:
        specials = range(FIRST_SPECIAL, VOCABULARY_SIZE)
        self.tokens = [*ordinary_tokens(encoding), *(encoding.token_bytes([i]) for i in specials)]
        self.special_token_ids = list(specials)
        self._encode: Callable[[str], list[int]] = encoding.encode

    def __call__(self, text: str | bytes) -> list[int]:
        """Encodes words that a grammar forces into the tokens that the model would use."""
        return self._encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def ordinary_tokens(encoding: Encoding) -> list[bytes]:
    """The bytes of all. Many are decoded at a time, with a token between them that no other contains."""
    separator, found = encoding.token_bytes([RETURN]), []
    for first in range(0, FIRST_SPECIAL, _CHUNK):
        chunk = range(first, min(first + _CHUNK, FIRST_SPECIAL))
        separated = [RETURN] * (2 * len(chunk))
        separated[::2] = chunk
        found += encoding.token_bytes(separated).split(separator)[:-1]
    assert len(found) == FIRST_SPECIAL, "an ordinary token holds the separator"
    return found


@functools.cache
def _executor() -> Any:
    import llguidance

    return llguidance.LLExecutor()


def first_line_and_cause(problem: str) -> tuple[str, str]:
    """What `Grammars.problem` returns, in two lines; the cause is empty where it has none."""
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    cause = next((line.removeprefix("error: ") for line in lines if line.startswith("error: ")), "")
    return lines[0], cause


def _first_line(matcher: Any) -> str:
    return str(matcher.get_error()).strip().partition("\n")[0]


_create_lock = threading.Lock()
_created: dict[int, Grammars] = {}


def grammars_of(encoding: Encoding) -> Grammars:
    """The grammars of an encoding, created at the first call and kept; raises `GrammarsMissing`."""
    with _create_lock:
        if id(encoding) not in _created:
            _created[id(encoding)] = Grammars(encoding)
        return _created[id(encoding)]
