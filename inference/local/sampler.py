"""Picks one token from the logits of one generation.

In go logits, out come tokens and, where asked for, log-probabilities. A sampler belongs to one generation:
its random numbers and its counts of what was generated depend on no other. It knows nothing of the model.

Order: logit_bias and penalties, temperature, min_p, top_k, top_p. The vocabulary is never sorted as a whole
unless a nucleus is wider than `WIDEST_PART`: sorting 201,088 logits takes 16 ms, the best 1,024 0.8 ms.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.engine import EngineFailed, Sampling, TokenLogprob

FIRST_PART = 64
WIDEST_PART = 4096


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

    @torch.inference_mode()
    def sample(self, logits: Tensor) -> Sampled:
        """Takes V logits, which it leaves as they are."""
        adjusted = logits if self._adjustment is None else logits + self._on(logits.device)
        best, token = (value.item() for value in torch.max(adjusted, 0))
        if not math.isfinite(best):
            raise EngineFailed(
                f"The model's logits are not finite (the largest is {best}): its weights are damaged, "
                "or logit_bias forbids every token."
            )
        if self._sampling.temperature > 0:
            token = self._draw(adjusted, best)
        self._count(int(token))
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
            weights, ids = _widening_nucleus(scaled, sampling.top_p)
            return int(ids[_pick(weights, point)].item())
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
        if wanted is None:
            return None
        total = torch.logsumexp(logits, 0)
        own = float((logits[token] - total).item())
        if wanted == 0:
            return TokenLogprob(token, own)
        values, ids = logits.topk(min(wanted, len(logits)))
        pairs = zip(ids.tolist(), (values - total).tolist(), strict=True)
        return TokenLogprob(token, own, tuple(pairs))


def _pick(weights: Tensor, point: float) -> int:
    """The index at this point (0 ≤ point < 1) of the weights laid end to end."""
    sums = torch.cumsum(weights, 0, dtype=torch.float64)
    # right=True passes over weights of 0; the last one that is not 0 bounds what rounding could pass.
    index = int(torch.searchsorted(sums, sums[-1:] * point, right=True).item())
    if index < len(weights) and weights[index] > 0:
        return index
    return int(torch.nonzero(weights)[-1].item())


def _nucleus(weights: Tensor, top_p: float, total: Tensor | None = None) -> Tensor:
    """Of weights in falling order, the fewest that reach top_p of the total (if none is given, their own)."""
    if top_p >= 1:
        return weights
    sums = torch.cumsum(weights, 0, dtype=torch.float64)
    reached = sums >= top_p * (sums[-1] if total is None else total)
    count = int(reached.int().argmax().item()) + 1 if bool(reached.any()) else len(weights)
    return weights[:count]


def _widening_nucleus(scaled: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The nucleus' weights in falling order and their ids, from as small a part as holds it."""
    total = scaled.exp().sum(dtype=torch.float64)
    part = FIRST_PART
    while part < len(scaled):
        values, ids = scaled.topk(part)
        weights = values.exp_()
        if float(weights.sum(dtype=torch.float64)) >= top_p * float(total):
            return _nucleus(weights, top_p, total), ids
        part = part * 8 if part < WIDEST_PART else len(scaled)
    values, ids = scaled.sort(descending=True)
    return _nucleus(values.exp_(), top_p, total), ids
