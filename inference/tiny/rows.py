"""The rows of tokens, made as they are needed: a learned part for some, and maps of what is fixed for all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.batches import Batch
from inference.tiny.codes import VOCABULARY, Longs, fixed_part
from inference.tiny.model import TinyGptOss
from inference.tiny.vocabulary import token_table

_AT_ONCE = 20_000


class Rows:
    """Of a model whose learned rows are those of the tokens `learned`, in this order."""

    def __init__(self, model: TinyGptOss, learned: Longs) -> None:
        self._model = model
        everything = np.arange(VOCABULARY, dtype=np.int32)
        self._fixed = torch.from_numpy(fixed_part(token_table(), everything).astype(np.int8))
        self._place = torch.zeros(VOCABULARY, dtype=torch.long)
        self._place[torch.from_numpy(learned)] = torch.arange(1, len(learned) + 1)

    def embedded(self, batch: Batch) -> Tensor:
        """The batch's tokens as the first layer reads them: rows are made only for those that occur."""
        present, inverse = torch.unique(torch.from_numpy(batch.tokens), return_inverse=True)
        ids = torch.from_numpy(batch.candidates)[present]
        return F.embedding(inverse, self._model.rows_in(self._place[ids], self._fixed[ids].float()))

    def out(self, ids: Tensor) -> Tensor:
        """The head's rows of these tokens."""
        rows: Tensor = self._model.rows_out(self._place[ids], self._fixed[ids].float())
        return rows

    @torch.no_grad()
    def all_out(self, kind: torch.dtype = torch.float32) -> Tensor:
        """The head's rows of the whole vocabulary."""
        parts = torch.split(torch.arange(VOCABULARY), _AT_ONCE)
        return torch.cat([self.out(part).to(kind) for part in parts])
