"""The sampling state of a generation on a device, and a batch of such states as one `Picking`.

The device counts a token when it samples it, before the host has read it; only grammars wait for the host.
"""

import itertools
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from inference.engine import Sampling
from inference.local.sampling.sampler import Masks, StopBan, biases, random_numbers, repeated_tokens
from inference.ops.device import ops_for
from inference.ops.sampling import Picking, penalised


class CudaPicker:
    def __init__(
        self, sampling: Sampling, vocab_size: int, device: torch.device, prompt: Sequence[int] = ()
    ) -> None:
        self.sampling = sampling
        self._ban = StopBan(sampling, vocab_size)
        self.masks = None if sampling.grammar is None else Masks(sampling.grammar, ban=self._ban)
        adjustment = biases(sampling, self._ban, vocab_size)
        self.adjustment = None if adjustment is None else adjustment.to(device)
        repeated = repeated_tokens(sampling, vocab_size, prompt)
        self.repeated = None if repeated is None else repeated.to(device)
        self._seen = torch.zeros(0 if adjustment is None else vocab_size, dtype=torch.bool, device=device)
        self._random = random_numbers(sampling.seed)
        self._points: deque[float] = deque()
        for token in sampling.continued:  # as an earlier generation sampled them
            if self.sampling.temperature > 0:
                self._random.random()
            if self.masks is not None:
                self.masks.accept(token)
            if self.adjustment is not None:
                self.count(torch.tensor([token], device=device))

    @property
    def is_plain(self) -> bool:
        """Whether earlier sampled tokens influence a token only through the model."""
        return self.masks is None and self.adjustment is None and self.repeated is None

    def points(self, count: int) -> list[float]:
        """The next random numbers. Repeated calls return the same ones until `used` consumes them."""
        if self.sampling.temperature <= 0:
            return [0.0] * count
        while len(self._points) < count:
            self._points.append(self._random.random())
        return [self._points[at] for at in range(count)]

    def used(self, count: int) -> None:
        for _ in range(min(count, len(self._points))):
            self._points.popleft()

    def count(self, token: Tensor) -> None:
        """Adds the penalties for one sampled token, which is still on the device."""
        at = token.clamp(min=0)  # -1: sampling failed, and the generation ends
        if self.repeated is not None:
            self.repeated.index_fill_(0, at, True)
        if self.adjustment is None:
            return
        if self.masks is None:  # otherwise the masks count
            for freed in self._ban.count():
                self.adjustment[freed] = self.sampling.logit_bias.get(freed, 0.0)
        first = (~self._seen.index_select(0, at)).float()
        penalty = self.sampling.frequency_penalty + self.sampling.presence_penalty * first
        self.adjustment.index_add_(0, at, -penalty)
        self._seen.index_fill_(0, at, True)


def pick_rows(
    logits: Tensor, pickers: Sequence[CudaPicker], points: Sequence[float], masks: Sequence[bytes | None]
) -> Tensor:
    """Picks a token for each row; does not count it."""
    device = logits.device
    logits = _penalised(logits, pickers)
    samplings = [picker.sampling for picker in pickers]
    settings = [
        (own.temperature, own.top_k, own.top_p, own.min_p, point)
        for own, point in zip(samplings, points, strict=True)
    ]
    numbers = to_device(torch.tensor(settings, dtype=torch.float64).t().contiguous(), device)
    adjustments = [picker.adjustment for picker in pickers]
    rows = [row for row in adjustments if row is not None]
    bits = [mask for mask in masks if mask is not None]
    picking = Picking(
        temperature=numbers[0].float(),
        top_k=numbers[1].int(),
        top_p=numbers[2].float(),
        min_p=numbers[3].float(),
        points=numbers[4],
        adjustments=torch.stack(rows) if rows else None,
        adjustment_of=_places(adjustments, device) if rows else None,
        masks=_stacked(bits, logits.shape[1], device) if bits else None,
        mask_of=_places(masks, device) if bits else None,
    )
    tokens: Tensor = ops_for(device).sample(logits, picking)
    return tokens.to(device)


def _penalised(logits: Tensor, pickers: Sequence[CudaPicker]) -> Tensor:
    """The logits after repetition penalties, in a copy if there are any."""
    if all(picker.repeated is None for picker in pickers):
        return logits
    logits = logits.clone()
    for row, picker in enumerate(pickers):
        if picker.repeated is not None:
            logits[row] = penalised(logits[row], picker.repeated, picker.sampling.repetition_penalty)
    return logits


def _places(rows: Sequence[object], device: torch.device) -> Tensor:
    """For each row its place among those that are not None, else -1."""
    count = itertools.count()
    places = [-1 if row is None else next(count) for row in rows]
    return to_device(torch.tensor(places, dtype=torch.int32), device)


def _stacked(masks: Sequence[bytes], vocab_size: int, device: torch.device) -> Tensor:
    """One row of bits per mask, padded to the vocabulary with tokens that may not be sampled."""
    size = -(-vocab_size // 8)
    joined = bytearray().join(mask[:size].ljust(size, b"\0") for mask in masks)
    return to_device(torch.frombuffer(joined, dtype=torch.uint8).view(len(masks), size), device)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copies without waiting for the device: torch keeps pinned memory until the copy is done."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values
