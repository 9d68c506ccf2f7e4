"""Impostors: tokens from the whole vocabulary that the model would write in place of the right one.

A batch's softmax holds some 3,000 of 200,000 tokens. The random ones among them almost never include the few
whose code happens to be close to the slightly wrong reading of a copied word. So training does not see that
the model would write them, and an unseen word comes out as another. This module finds them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_REFRESHED = 100  # steps between updates of the rows of the whole vocabulary
_WORST, _ANY = 64, 32  # targets to find impostors for: the least certain, and random ones
_EACH = 4


class Impostors:
    """Finds impostors by slightly outdated rows of the head for all tokens."""

    def __init__(self, rows: Callable[[torch.dtype], Tensor], *, half: bool, times: int = 1) -> None:
        """`times`: the number of usual batches in one."""
        self._times = times
        self._all_rows = rows
        self._kind = torch.bfloat16 if half else torch.float32
        self._rows = torch.empty(0)
        self._age = 0

    @torch.no_grad()
    def of(self, hidden: Tensor, losses: Tensor, places: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tokens outside `candidates`, for some of the targets at `places`.

        Also returns a bias for their logits: on a GPU duplicates stay and get -inf, because removing them
        would wait for the device.
        """
        if self._age % _REFRESHED == 0:
            self._rows = self._all_rows(self._kind)
        self._age += 1
        worst = places[losses[places].topk(min(_WORST * self._times, len(places))).indices]
        some = places[torch.randperm(len(places), device=places.device)[: _ANY * self._times]]
        scores = hidden[torch.cat((worst, some))].to(self._kind) @ self._rows.t()
        scores[:, candidates] = float("-inf")
        found = scores.topk(_EACH, dim=1).indices.flatten().sort().values
        again = torch.zeros_like(found, dtype=torch.bool)
        again[1:] = found[1:] == found[:-1]
        if not found.is_cuda:
            return found[~again], torch.zeros(())
        return found, losses.new_zeros(len(found)).masked_fill(again, float("-inf"))
