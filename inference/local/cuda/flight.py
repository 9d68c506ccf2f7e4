"""A step in flight on a device, and how the host reads its results.

The work that needs the tokens themselves follows once they have reached the host: grammars accept them, and
drafts are compared with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from inference.engine import EngineFailed, InferenceError, TokenLogprob
from inference.failures import as_failure
from inference.local.cuda.picker import CudaPicker
from inference.local.scheduling.step import Outcome, Sampled, StepPart

NOT_FINITE = (
    "The model's logits are not finite: its weights are damaged, or logit_bias and the grammar forbid "
    "every token."
)


@dataclass(frozen=True, slots=True)
class Scores:
    """Tokens of some rows and their log-probabilities, the likeliest tokens with theirs, and ranks if due."""

    tokens: Tensor
    own: Tensor
    values: Tensor
    ids: Tensor
    ranks: Tensor | None = None

    def on_host(self) -> Scores:
        ranks = None if self.ranks is None else on_host(self.ranks)
        tokens, own, values, ids = map(on_host, (self.tokens, self.own, self.values, self.ids))
        return Scores(tokens, own, values, ids, ranks)

    def logprobs(self, top: int) -> list[TokenLogprob]:
        """With the `top` likeliest tokens of each row."""
        tokens, own = self.tokens.tolist(), self.own.tolist()
        pairs = [
            tuple(zip(ids[:top], values[:top], strict=True))
            for ids, values in zip(self.ids.tolist(), self.values.tolist(), strict=True)
        ]
        ranks = [None] * len(tokens) if self.ranks is None else self.ranks.tolist()
        return [TokenLogprob(*row) for row in zip(tokens, own, pairs, ranks, strict=True)]


@dataclass(slots=True)
class Pending:
    """One part of a step in flight: the place of its tokens among the flight's, its scores and its error."""

    part: StepPart
    tokens: slice = field(default_factory=lambda: slice(0, 0))
    logprobs: Scores | None = None  # of the sampled tokens
    scores: Scores | None = None  # of the prompt
    error: InferenceError | None = None  # a failure before the flight was launched
    guess_row: int | None = None  # of its guesses among the flight's

    @property
    def picker(self) -> CudaPicker:
        assert isinstance(self.part.picker, CudaPicker)
        return self.part.picker


class CudaFlight:
    """Implements `inference.local.scheduling.step.Flight`."""

    def __init__(self, pending: Sequence[Pending], tokens: Tensor, guesses: Tensor | None = None) -> None:
        """`pending` is in the order of the launched parts; the others are already being copied to the host.
        `guesses`: a row for each part that has a `guess_row`."""
        self._pending, self._tokens, self._guesses = pending, tokens, guesses
        self._outcomes: list[Outcome] | None = None
        self._arrived: torch.cuda.Event | None = None
        if tokens.is_pinned():
            self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._arrived.record()

    def outcomes(self) -> list[Outcome]:
        """Waits on the first call, which also passes the tokens to the grammars."""
        if self._outcomes is None:
            if self._arrived is not None:
                self._arrived.synchronize()
            tokens = self._tokens.tolist()
            guesses = [] if self._guesses is None else self._guesses.tolist()
            self._outcomes = [
                _with_guesses(pending, _outcome(pending, tokens[pending.tokens]), guesses)
                for pending in self._pending
            ]
        return self._outcomes


def on_host(values: Tensor) -> Tensor:
    """Starts a copy to the host, readable once the stream has passed this point."""
    if values.device.type != "cuda":
        return values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)


def _outcome(pending: Pending, tokens: Sequence[int]) -> Outcome:
    part, picker = pending.part, pending.picker
    scores = (
        () if pending.scores is None else tuple(pending.scores.logprobs(picker.sampling.prompt_logprobs or 0))
    )
    if pending.error is not None:
        return Outcome((), scores, pending.error)
    reported = None if pending.logprobs is None else pending.logprobs.logprobs(picker.sampling.logprobs or 0)
    sampled: list[Sampled] = []
    try:
        for at, token in enumerate(tokens):
            if token < 0:
                raise EngineFailed(NOT_FINITE)
            if picker.masks is not None and not part.samples > 1:
                picker.masks.accept(token)
            sampled.append(Sampled(token, None if reported is None else reported[at]))
            if not confirms_draft(part, picker, at, token):
                break
    except Exception as error:
        # Any exception: a grammar is foreign code, and its failure must end only its own generation.
        return Outcome(tuple(sampled), scores, as_failure(error))
    if part.samples > 1 and picker.is_plain:
        picker.used(len(sampled))
    return Outcome(tuple(sampled), scores)


def _with_guesses(pending: Pending, outcome: Outcome, guesses: Sequence[Sequence[int]]) -> Outcome:
    if pending.guess_row is None or outcome.error is not None or not guesses:
        return outcome
    if outcome.sampled[-1].token in pending.picker.sampling.stop_token_ids:
        return outcome
    return replace(outcome, guesses=tuple(guesses[pending.guess_row][: pending.part.guesses]))


def confirms_draft(part: StepPart, picker: CudaPicker, at: int, token: int) -> bool:
    """Whether the token sampled for row `at` equals the draft that the next row builds on."""
    drafts = part.tokens[len(part.tokens) - part.samples + 1 :]
    return token not in picker.sampling.stop_token_ids and at < len(drafts) and drafts[at] == token
