"""Impostors: tokens from all over the vocabulary that the model would say in place of the right one.

Of 200,000 tokens a batch's softmax holds some 3,000. Those that are drawn for it are almost never the few
whose code happens to be near what is read of a copied word, a little wrongly: so training does not see that
they would be said, and a word that it has never seen comes out as another. Here they are looked for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_REFRESHED = 100  # steps between looks at the rows of the whole vocabulary
_WORST, _ANY = 64, 32  # targets that impostors are looked for: the least certain, and any
_EACH = 4


class Impostors:
    """Finds them by the head's rows for all tokens, as those were a while ago."""

    def __init__(self, rows: Callable[[torch.dtype], Tensor], *, half: bool, times: int = 1) -> None:
        """`times`: of how many usual batches one is made."""
        self._times = times
        self._all_rows = rows
        self._kind = torch.bfloat16 if half else torch.float32
        self._rows = torch.empty(0)
        self._age = 0

    @torch.no_grad()
    def of(self, hidden: Tensor, losses: Tensor, places: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest tokens that are no `candidates`, for some of the targets at `places`.

        And what is added to their logits: a card keeps one that was found twice, since to leave it out it
        would have to be waited for.
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
