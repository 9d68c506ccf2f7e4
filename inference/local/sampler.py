"""Picks one token from the logits of one generation.

In go logits, out come tokens and, where asked for, log-probabilities. A sampler belongs to one generation:
its random numbers and its counts of what was generated depend on no other. It knows nothing of the model.

Order: the grammar, logit_bias and penalties, temperature, min_p, top_k, top_p. The vocabulary is never
sorted as a whole: that takes 16 ms for 201,088 logits, finding the best 512 of them 0.4 ms, a pass over all
0.1 ms.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inference.engine import EngineFailed, Sampling, TokenLogprob
from inference.local.masks import Masks

BLOCK = 1024
PARTS = (64, 512)  # how many of the best tokens are looked at, one size after the other


@dataclass(frozen=True, slots=True)
class Sampled:
    token: int
    logprob: TokenLogprob | None = None


class Sampler:
    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        self._sampling = sampling
        self._vocab_size = vocab_size
        self._random = random.Random(sampling.seed)
        self._seen: set[int] = set()
        self._adjustment = self._biases(sampling)
        self._masks = None if sampling.grammar is None else Masks(sampling.grammar)

    @torch.inference_mode()
    def sample(self, logits: Tensor) -> Sampled:
        """Takes V logits, which it leaves as they are."""
        adjusted = logits if self._adjustment is None else logits + self._on(logits.device)
        if self._masks is not None:
            adjusted = adjusted + self._masks.row(len(logits), logits.device)
        best, token = (value.item() for value in torch.max(adjusted, 0))
        if not math.isfinite(best):
            raise EngineFailed(
                f"The model's logits are not finite (the largest is {best}): its weights are damaged, "
                "or logit_bias and the grammar forbid every token."
            )
        if self._sampling.temperature > 0:
            token = self._draw(adjusted, best)
        self._count(int(token))
        if self._masks is not None:
            self._masks.accept(int(token))
        return Sampled(int(token), self._logprob(logits, int(token)))

    def _draw(self, logits: Tensor, best: float) -> int:
        """One uniform number per token, whatever the fields: a seed gives the same numbers everywhere."""
        point = self._random.random()
        sampling = self._sampling
        # Below 1e-4 float32 would overflow on the way; there the choice is as good as greedy.
        scaled = (logits - best).div_(max(sampling.temperature, 1e-4))
        if sampling.min_p > 0:
            scaled = scaled.masked_fill_(scaled < math.log(min(sampling.min_p, 1.0)), -math.inf)
        if 0 < sampling.top_k < len(scaled):
            values, ids = scaled.topk(sampling.top_k)
            return int(ids[_pick(_nucleus(values.exp_(), sampling.top_p), point)].item())
        if sampling.top_p < 1:
            return _draw_from_nucleus(scaled, sampling.top_p, point)
        return _pick(scaled.exp_(), point)

    def _biases(self, sampling: Sampling) -> Tensor | None:
        """What is added to the logits; one dense row, so that a long answer costs no more per token."""
        biased = any(0 <= token < self._vocab_size for token in sampling.logit_bias)
        if not (biased or sampling.presence_penalty or sampling.frequency_penalty):
            return None
        row = torch.zeros(self._vocab_size)
        for token, bias in sampling.logit_bias.items():
            if 0 <= token < self._vocab_size:  # another id has no logit, so there is nothing to bias
                row[token] += bias
        return row

    def _on(self, device: torch.device) -> Tensor:
        assert self._adjustment is not None
        self._adjustment = self._adjustment.to(device)
        return self._adjustment

    def _count(self, token: int) -> None:
        if self._adjustment is None:
            return
        penalty = self._sampling.frequency_penalty
        if token not in self._seen:
            self._seen.add(token)
            penalty += self._sampling.presence_penalty
        self._adjustment[token] -= penalty

    def _logprob(self, logits: Tensor, token: int) -> TokenLogprob | None:
        """Of the model's own distribution: before bias, penalties and temperature."""
        wanted = self._sampling.logprobs
        return None if wanted is None else score_of(logits, token, wanted)


def score_of(logits: Tensor, token: int, top: int) -> TokenLogprob:
    """How likely a token is by these V logits, and the `top` likeliest."""
    total = torch.logsumexp(logits, 0)
    own = float((logits[token] - total).item())
    if top == 0:
        return TokenLogprob(token, own)
    values, ids = logits.topk(min(top, len(logits)))
    pairs = zip(ids.tolist(), (values - total).tolist(), strict=True)
    return TokenLogprob(token, own, tuple(pairs))


def _pick(weights: Tensor, point: float) -> int:
    """The index at this point (0 ≤ point < 1) of the weights laid end to end.

    In two steps, blocks first: running sums of the whole vocabulary cost three times as much.
    """
    whole = len(weights) - len(weights) % BLOCK
    blocks = weights[:whole].view(-1, BLOCK).sum(1, dtype=torch.float64)
    sums = torch.cat((blocks, weights[whole:].sum(dtype=torch.float64).view(1))).cumsum(0)
    target = float(sums[-1]) * point
    block = _index_at(sums, target)
    inside = weights[block * BLOCK : (block + 1) * BLOCK].cumsum(0, dtype=torch.float64)
    return block * BLOCK + _index_at(inside, target - (float(sums[block - 1]) if block else 0.0))


def _index_at(sums: Tensor, target: float) -> int:
    """The first whose running sum is past the target; where rounding passed all, the last that adds."""
    index = int(torch.searchsorted(sums, target, right=True))
    if index < len(sums):
        return index
    return int(torch.searchsorted(sums, sums[-1:]).item())


def _nucleus(weights: Tensor, top_p: float, total: Tensor | None = None) -> Tensor:
    """Of weights in falling order, the fewest that reach top_p of the total (None: their own)."""
    if top_p >= 1:
        return weights
    sums = torch.cumsum(weights, 0, dtype=torch.float64)
    reached = sums >= top_p * (sums[-1] if total is None else total)
    count = int(reached.int().argmax().item()) + 1 if bool(reached.any()) else len(weights)
    return weights[:count]


def _draw_from_nucleus(scaled: Tensor, top_p: float, point: float) -> int:
    weights = scaled.exp()
    total = weights.sum(dtype=torch.float64)
    narrow = _narrow_nucleus(scaled, total, top_p)
    if narrow is None:
        return _pick(_wide_nucleus(weights, total, top_p), point)
    return int(narrow[1][_pick(narrow[0], point)].item())


def _narrow_nucleus(scaled: Tensor, total: Tensor, top_p: float) -> tuple[Tensor, Tensor] | None:
    """The nucleus' weights in falling order and their ids, from as small a part as holds it, if one does."""
    for part in PARTS:
        if part >= len(scaled):
            return None
        values, ids = scaled.topk(part)
        weights = values.exp_()
        if float(weights.sum(dtype=torch.float64)) >= top_p * float(total):
            return _nucleus(weights, top_p, total), ids
    return None


def _wide_nucleus(weights: Tensor, total: Tensor, top_p: float) -> Tensor:
    """The weights with those outside the nucleus made 0: those below the largest bound that keeps enough.

    The bound is found by halving its logarithm, in some 30 passes over the vocabulary: 2 ms, where sorting it
    takes 16. Weights that are the same to one part in 10^7 are in or out together.
    """
    wanted = top_p * float(total)
    low, high = 1e-38, 2.0  # the largest weight is 1
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        kept = float(functional.threshold(weights, middle, 0.0).sum(dtype=torch.float64))
        low, high = (middle, high) if kept >= wanted else (low, middle)
    return functional.threshold(weights, low, 0.0)
