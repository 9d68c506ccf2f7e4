"""The state of one generation's sampling: its random numbers, its counts, its grammar, its banned stop ids.

A sampler belongs to one generation and depends on no other. The ops pick the token.
"""

import math
import random
from collections.abc import Sequence
from concurrent.futures import Executor

import torch
from torch import Tensor

from inference.engine import EngineFailed, Sampling, TokenLogprob
from inference.local.sampling.masks import Masks, StopBan
from inference.local.scheduling.step import Sampled
from inference.ops.sampling import largest, penalised, pick


def random_numbers(seed: int | None) -> random.Random:
    """Python treats the seed -1 as 1; with `seed + i` per choice, two choices would then be the same."""
    return random.Random(None if seed is None else seed % 2**64)


class Sampler:
    def __init__(
        self, sampling: Sampling, vocab_size: int, workers: Executor | None = None, prompt: Sequence[int] = ()
    ) -> None:
        """`workers` compute the grammar's masks (masks.py). `prompt` matters to the repetition penalty."""
        self.sampling = sampling
        self._random = random_numbers(sampling.seed)
        self._seen: set[int] = set()
        self._ban = StopBan(sampling, vocab_size)
        self._adjustment = biases(sampling, self._ban, vocab_size)
        self._masks = None if sampling.grammar is None else Masks(sampling.grammar, workers, self._ban)
        self._repeated = repeated_tokens(sampling, vocab_size, prompt)
        for token in sampling.continued:
            self._point()
            self._take(token)

    def prepare(self) -> None:
        """Call it when a step begins that ends with a sample."""
        if self._masks is not None:
            self._masks.prepare()

    @torch.inference_mode()
    def sample(self, logits: Tensor) -> Sampled:
        """Takes V logits and does not change them."""
        adjusted = logits
        if self._repeated is not None:
            self._repeated = self._repeated.to(logits.device)
            adjusted = penalised(logits, self._repeated, self.sampling.repetition_penalty)
        if self._adjustment is not None:
            self._adjustment = self._adjustment.to(logits.device)
            adjusted = adjusted + self._adjustment
        if self._masks is not None:
            adjusted = adjusted + self._masks.row(len(logits), logits.device)
        sampling = self.sampling
        token = pick(
            adjusted,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            # One number per token unless the temperature is 0, so that a seed gives the same on every runner.
            point=self._point(),
        )
        if token is None:
            raise EngineFailed(
                f"The model's logits are not finite (the largest is {float(adjusted.max())}): its weights "
                "are damaged, or logit_bias and the grammar forbid every token."
            )
        self._take(token)
        # From the model's own distribution: before bias, penalties and temperature.
        top = sampling.logprobs
        return Sampled(token, None if top is None else token_score(logits, token, top, sampling.alternatives))

    def _point(self) -> float:
        return self._random.random() if self.sampling.temperature > 0 else 0.0

    def _take(self, token: int) -> None:
        self._count(token)
        if self._masks is not None:
            self._masks.accept(token)

    def _count(self, token: int) -> None:
        if self._repeated is not None:
            self._repeated[token] = True
        if self._adjustment is None:
            return
        if self._masks is None:
            for freed in self._ban.count():
                self._adjustment[freed] = self.sampling.logit_bias.get(freed, 0.0)
        penalty = self.sampling.frequency_penalty
        if token not in self._seen:
            self._seen.add(token)
            penalty += self.sampling.presence_penalty
        self._adjustment[token] -= penalty


def biases(sampling: Sampling, ban: StopBan, vocab_size: int) -> Tensor | None:
    """The sum of biases for the logits; one dense row, so that a long answer costs no more per token."""
    known = {token: bias for token, bias in sampling.logit_bias.items() if 0 <= token < vocab_size}
    if sampling.grammar is None:  # otherwise the masks apply the ban
        known |= dict.fromkeys(ban.ids, -math.inf)
    if not (known or sampling.presence_penalty or sampling.frequency_penalty):
        return None
    row = torch.zeros(vocab_size)
    row[list(known)] = torch.tensor(list(known.values()), dtype=torch.float32)
    return row


def repeated_tokens(sampling: Sampling, vocab_size: int, prompt: Sequence[int]) -> Tensor | None:
    """For each token whether the prompt has it; None without a repetition penalty."""
    if sampling.repetition_penalty == 1:
        return None
    repeated = torch.zeros(vocab_size, dtype=torch.bool)
    repeated[torch.tensor(prompt, dtype=torch.int64)] = True
    return repeated


def token_score(
    logits: Tensor, token: int, top: int, among: Sequence[int] = (), *, ranked: bool = False
) -> TokenLogprob:
    """A token's log-probability under these V logits, the `top` likeliest tokens or those `among`, and
    its rank if `ranked`."""
    total = torch.logsumexp(logits, 0)
    own = float((logits[token] - total).item())
    rank = int((logits > logits[token]).sum().item()) + 1 if ranked else None
    if top == 0:
        return TokenLogprob(token, own, rank=rank)
    if among:
        ids = torch.tensor(among, device=logits.device)
        values = logits[ids]
    else:
        values, ids = largest(logits, min(top, len(logits)))
    pairs = zip(ids.tolist(), (values - total).tolist(), strict=True)
    return TokenLogprob(token, own, tuple(pairs), rank)
