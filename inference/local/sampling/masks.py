"""Which tokens one generation may not sample: its grammar's masks, and the stop ids that are banned.

Takes a grammar and each sampled token; returns, before each next token, a row of 0 for tokens that may be
sampled and -inf for the rest. Stop ids that are banned are left out, unless the grammar allows nothing else:
a form that is complete ends. It must not know the model or how a token is picked.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future

import torch
from torch import Tensor

from inference.engine import EngineFailed, Sampling
from inference.grammar import Grammar, compute_masks
from inference.ops.sampling import mask_row


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
