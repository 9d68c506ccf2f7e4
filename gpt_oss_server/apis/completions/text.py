"""Decodes sampled tokens to plain text.

Takes the steps of an engine. Returns pieces of text, each with the scores of its tokens. A character that is
split over several tokens appears once it is complete. It must not know Harmony.
"""

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpt_oss_server.content.logprobs import LEAST, Speller
from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, Encoding
from gpt_oss_server.turns.stops import StopFilter
from inference.engine import Step, TokenLogprob


@dataclass(slots=True)
class LegacyLogprobs:
    """The four parallel lists of this API."""

    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)

    def add(self, token: str, logprob: float | None, top: dict[str, float] | None, offset: int) -> None:
        self.tokens.append(token)
        self.token_logprobs.append(logprob)
        self.top_logprobs.append(top)
        self.text_offset.append(offset)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


_utf8_decoder = partial(codecs.getincrementaldecoder("utf-8"), "replace")


@dataclass(slots=True, kw_only=True)
class PlainText:
    encoding: Encoding
    stops: StopFilter
    shows_special: bool
    speller: Speller | None
    top: int
    _utf8: codecs.IncrementalDecoder = field(default_factory=_utf8_decoder, init=False)
    _fed: int = field(default=0, init=False)  # characters decoded
    _shown: int = field(default=0, init=False)
    _waiting: deque[tuple[int, TokenLogprob]] = field(default_factory=deque, init=False)

    @property
    def stopped(self) -> str | None:
        return self.stops.found

    def echo(
        self, prompt: Sequence[int], scores: Sequence[TokenLogprob | None]
    ) -> tuple[str, LegacyLogprobs | None]:
        """The prompt's text and scores, which come before all output; the first token has no score."""
        assert self.speller is not None
        scored_text, utf8, offset = LegacyLogprobs(), _utf8_decoder(), 0
        for token, scored in zip(prompt, scores, strict=True):
            if scored is None:
                scored_text.add(self.speller.spelt_distinctly(token), None, None, offset)
            else:
                self._add(scored_text, self.speller, scored, offset)
            offset += len(utf8.decode(self.encoding.token_bytes([token])))
        text = self.encoding.decode(prompt)
        self._fed = self._shown = len(text)
        return text, scored_text

    def feed(self, step: Step) -> tuple[str, LegacyLogprobs | None]:
        text = ""
        for index, token in enumerate(step.tokens):
            if step.logprobs is not None:  # hidden tokens have a score too: they were sampled
                self._waiting.append((self._fed, step.logprobs[index]))
            if token >= FIRST_SPECIAL and not self.shows_special:
                continue
            decoded = self._utf8.decode(self.encoding.token_bytes([token]))
            self._fed += len(decoded)
            text += decoded
        return self._show(self.stops.feed(text))

    def close(self) -> tuple[str, LegacyLogprobs | None]:
        if self.stops.found is not None:
            return "", None
        rest = self._utf8.decode(b"", final=True)
        return self._show(self.stops.feed(rest) + self.stops.close(), is_last=True)

    def _show(self, text: str, *, is_last: bool = False) -> tuple[str, LegacyLogprobs | None]:
        self._shown += len(text)
        if self.speller is None:
            return text, None
        scores = LegacyLogprobs()
        while self._waiting and (self._waiting[0][0] < self._shown or is_last):
            offset, scored = self._waiting.popleft()
            self._add(scores, self.speller, scored, offset)
        return text, scores

    def _add(self, scores: LegacyLogprobs, speller: Speller, scored: TokenLogprob, offset: int) -> None:
        token, logprob = speller.spelt_distinctly(scored.token), max(scored.logprob, LEAST)
        top = {token: logprob}  # at any rank, as at OpenAI; first, as clients of vLLM expect it
        for other, score in scored.top[: self.top]:
            top.setdefault(speller.spelt_distinctly(other), max(score, LEAST))
        scores.add(token, logprob, top, offset)


def scores_of_prompt(
    scores: Sequence[TokenLogprob | None], speller: Speller, top: int
) -> list[dict[str, Any] | None]:
    """The scores of the prompt's own tokens in vLLM's JSON; the first token has none."""
    return [None if scored is None else _ranked(scored, speller, top) for scored in scores]


def _ranked(scored: TokenLogprob, speller: Speller, top: int) -> dict[str, Any]:
    """By token id: the likeliest tokens, and the prompt's own token at any rank."""
    ranked = {token: (logprob, rank) for rank, (token, logprob) in enumerate(scored.top, 1)}
    _, listed = ranked.get(scored.token, (0.0, None))
    shown: dict[int, tuple[float, int | None]] = dict(list(ranked.items())[:top])
    shown[scored.token] = (scored.logprob, scored.rank if listed is None else listed)
    return {
        str(token): {"logprob": max(logprob, LEAST), "rank": rank, "decoded_token": speller.spelt(token)}
        for token, (logprob, rank) in shown.items()
    }
