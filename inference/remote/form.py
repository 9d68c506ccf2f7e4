"""The grammar of one generation, as the text that its requests send along.

Where the model hardly ever leaves it, requests have none until a token does not fit: that token is dropped,
and sampled again with what is left of the grammar. Unless the choice is cut (`top_p` and its like), the
distribution is the grammar's own: the probability of tokens that do not fit is shared out among the others.
"""

import asyncio
import logging
from dataclasses import replace

from inference.engine import InferenceError, Sampling, Step
from inference.grammar import Notation, SpelledGrammar, Spelling
from inference.remote.wire import Ask

_log = logging.getLogger(__name__)


class Form:
    def __init__(self, sampling: Sampling, notation: Notation | None) -> None:
        grammar = sampling.grammar if notation is not None else None
        self._spelling = grammar.spelling() if isinstance(grammar, SpelledGrammar) else None
        self._notation = notation
        self._is_enforced = not (isinstance(grammar, SpelledGrammar) and grammar.is_usual)
        if self._spelling is not None:
            self._spelling.take(sampling.continued)

    def fitted(self, step: Step) -> tuple[Step, bool]:
        """The step up to a token that does not fit, and whether all do. Then the next request enforces it."""
        if self._spelling is None:
            return step, True
        if self._is_enforced:
            self._spelling.take(step.tokens)
            return step, True
        end = self._spelling.take_fitting(step.tokens)
        if end == len(step.tokens):
            return step, True
        self._is_enforced = True
        logprobs = None if step.logprobs is None else step.logprobs[:end]
        return replace(step, tokens=step.tokens[:end], finish=None, logprobs=logprobs), False

    async def of(self, ask: Ask) -> Ask:
        """The request with the grammar of what it samples; shorter where no grammar can begin yet."""
        if self._spelling is None or self._notation is None or not self._is_enforced:
            return ask
        return await asyncio.to_thread(_with_grammar, ask, self._spelling, self._notation)

    def give_up(self, why: InferenceError) -> None:
        """The server does not take the grammar: the turn's rest is free, and checked when it has ended."""
        _log.warning("The turn's form is checked after it has ended, not enforced. %s", why)
        self._spelling = None


def _with_grammar(ask: Ask, spelling: Spelling, notation: Notation) -> Ask:
    grammar = spelling.rest(notation)
    if spelling.is_inside_character:
        ask = replace(ask, limit=1)
    ends = frozenset() if grammar is None else spelling.ends
    return replace(ask, grammar=grammar, ends=ends)
