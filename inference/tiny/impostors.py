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

    def __init__(self, rows: Callable[[torch.dtype], Tensor], *, half: bool) -> None:
        self._all_rows = rows
        self._kind = torch.bfloat16 if half else torch.float32
        self._rows = torch.empty(0)
        self._age = 0

    @torch.no_grad()
    def of(self, hidden: Tensor, losses: Tensor, own: Tensor, candidates: Tensor) -> Tensor:
        """The likeliest tokens that are no `candidates`, for some of the model's `own` targets."""
        if self._age % _REFRESHED == 0:
            self._rows = self._all_rows(self._kind)
        self._age += 1
        places = own.nonzero().squeeze(1)
        worst = places[losses[places].topk(min(_WORST, len(places))).indices]
        some = places[torch.randperm(len(places))[:_ANY]]
        scores = hidden[torch.cat((worst, some))].to(self._kind) @ self._rows.t()
        scores[:, candidates] = float("-inf")
        found: Tensor = torch.unique(scores.topk(_EACH, dim=1).indices)
        return found
