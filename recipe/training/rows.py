"""The rows of tokens, made on demand: a learned part for some, and maps of the fixed part for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.codes import VOCABULARY, Longs, fixed_part
from recipe.network.model import TinyGptOss
from recipe.text.vocabulary import token_table
from recipe.training.batches import Batch

_AT_ONCE = 20_000


def placed(numbers: npt.NDArray[Any], device: torch.device) -> Tensor:
    """`numbers` on the device. A GPU copies them asynchronously."""
    here = torch.from_numpy(numbers)
    return here.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else here


class Rows:
    """The rows of a model whose learned rows belong to the tokens `learned`, in this order."""

    def __init__(self, model: TinyGptOss, learned: Longs) -> None:
        self._model = model
        self.device = model.norm.device
        everything = np.arange(VOCABULARY, dtype=np.int32)
        self._fixed = self.placed(fixed_part(token_table(), everything).astype(np.int8))
        place = torch.zeros(VOCABULARY, dtype=torch.long)
        place[torch.from_numpy(learned)] = torch.arange(1, len(learned) + 1)
        self._place = place.to(self.device)

    def placed(self, numbers: npt.NDArray[Any]) -> Tensor:
        """`numbers` on the model's device."""
        return placed(numbers, self.device)

    def embedded(self, batch: Batch) -> Tensor:
        """The embedded tokens of the batch. Rows are made only for those that occur, the first candidates."""
        ids = self.placed(batch.candidates[: batch.tokens.max() + 1])
        rows = self._model.rows_in(self._place[ids], self._fixed[ids].float())
        return F.embedding(self.placed(batch.tokens), rows)

    def out(self, ids: Tensor) -> Tensor:
        """The head's rows of these tokens."""
        rows: Tensor = self._model.rows_out(self._place[ids], self._fixed[ids].float())
        return rows

    @torch.no_grad()
    def all_out(self, kind: torch.dtype = torch.float32) -> Tensor:
        """The head's rows of the whole vocabulary."""
        parts = torch.split(torch.arange(VOCABULARY, device=self.device), _AT_ONCE)
        return torch.cat([self.out(part).to(kind) for part in parts])
