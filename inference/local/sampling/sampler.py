"""The state of one generation's sampling: its random numbers, its counts, its grammar, its banned stop ids.

A sampler belongs to one generation and depends on no other. The ops pick the token. Stop ids that are banned
are not sampled, unless the grammar allows nothing else: a form that is complete ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from concurrent.futures import Executor, Future

import torch
from torch import Tensor

from inference.engine import EngineFailed, Sampling, TokenLogprob
from inference.grammar import Grammar, compute_masks
from inference.local.scheduling.step import Sampled
from inference.ops.sampling import largest, mask_row, penalised, pick


class StopBan:
    """The stop ids that may not be sampled yet, or never; the samplers and the masks apply it."""

    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        stops = frozenset(token for token in sampling.stop_token_ids if 0 <= token < vocab_size)
        self._always = stops & sampling.ignored_stop_ids
        self._left = sampling.min_tokens  # tokens until the other stop ids may be sampled
        self.ids = stops if self._left > 0 else self._always

    def count(self) -> frozenset[int]:
        """Counts one sampled token. Returns the ids that may be sampled from now on, if any."""
        self._left -= 1
        if self._left != 0:
            return frozenset()
        freed, self.ids = self.ids - self._always, self._always
        return freed


class Masks:
    def __init__(self, grammar: Grammar, workers: Executor | None = None, ban: StopBan | None = None) -> None:
        """`workers` compute masks while the step runs; with None they are computed when needed."""
        self._state = grammar.start()
        self._ban = ban
        self._workers = workers
        self._coming: Future[bytes] | None = None

    def prepare(self) -> None:
        """Starts on the next row. The caller accepts no token before it takes the row."""
        if self._workers is not None and self._coming is None:
            self._coming = self._workers.submit(self._state.mask)

    def bits(self) -> bytes:
        """One bit per token, lowest first: set if the token may be sampled."""
        coming, self._coming = self._coming, None
        bits = self._state.mask() if coming is None else coming.result()
        if not any(bits):
            raise _no_token()
        return self._without_banned(bits)

    def row(self, vocab_size: int, device: torch.device) -> Tensor:
        bits = torch.frombuffer(bytearray(self.bits()), dtype=torch.uint8)
        return mask_row(bits.to(device), vocab_size)

    def accept(self, token: int) -> None:
        self._state.accept(token)
        if self._ban is not None:
            self._ban.count()

    def _without_banned(self, bits: bytes) -> bytes:
        if self._ban is None or not self._ban.ids:
            return bits
        left = bytearray(bits)
        for token in self._ban.ids:
            if token // 8 < len(left):
                left[token // 8] &= ~(1 << token % 8)
        return bytes(left) if any(left) else bits

    @staticmethod
    def bits_of_all(masks: Sequence[Masks]) -> list[bytes | Exception]:
        """The bits of each, computed together, or the error that its generation ends with."""
        bits_of_each = compute_masks([mask._state for mask in masks])
        return [
            bits if isinstance(bits, Exception) else mask._without_banned(bits) if any(bits) else _no_token()
            for mask, bits in zip(masks, bits_of_each, strict=True)
        ]


def _no_token() -> EngineFailed:
    return EngineFailed("The request's grammar allows no token here.")


def random_numbers(seed: int | None) -> random.Random:
    """Python treats the seed -1 as 1; with `seed + i` per choice, two choices would then be the same."""
    return random.Random(None if seed is None else seed % 2**64)


class Sampler:
    def __init__(
        self, sampling: Sampling, vocab_size: int, workers: Executor | None = None, prompt: Sequence[int] = ()
    ) -> None:
        """`workers` compute the grammar's masks. `prompt` matters to the repetition penalty."""
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
    """How likely V logits make a token, and the `top` likeliest or those `among`; its rank if `ranked`."""
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
