"""The grammar of one generation, as the text that each of its requests sends along."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from inference.engine import InferenceError, Sampling
from inference.grammar import Notation, SpelledGrammar, Spelling
from inference.remote.wire import Ask

_log = logging.getLogger(__name__)


class Form:
    def __init__(self, sampling: Sampling, notation: Notation | None) -> None:
        grammar = sampling.grammar if notation is not None else None
        self._spelling = grammar.spelling() if isinstance(grammar, SpelledGrammar) else None
        self._notation = notation
        self.take(sampling.continued)

    def take(self, tokens: Sequence[int]) -> None:
        if self._spelling is not None:
            self._spelling.take(tokens)

    async def of(self, ask: Ask) -> Ask:
        """The request with the grammar of what it samples; shorter where no grammar can begin yet."""
        if self._spelling is None or self._notation is None:
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
