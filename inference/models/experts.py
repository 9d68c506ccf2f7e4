"""One layer's experts, converted to floats when a token needs them; takes tokens, returns the weighted sums.

The weights stay as stored (MXFP4 or bf16). If the floats of all layers together are small (the embedded
model), the first token has them made, and they are kept, in 16 bits where that is exact.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.models.layouts import Packed
from inference.ops import reference as ops
from inference.ops.halves import Matrix, halves_where_exact, linear

# The most memory for all experts of a model as floats. A larger model keeps none: the kept ones would be
# evicted before they are used again.
KEPT_FLOAT_BYTES = 256 << 20
# The largest tokens × experts for which every kept expert runs on every token.
DENSE_ROWS = 128

Floats = tuple[Tensor, Tensor, Tensor, Tensor]  # w1 2I×H, b1, w2 H×I, b2
Rows = tuple[Matrix, Tensor, Matrix, Tensor]  # the same, packed or not


class Experts:
    waits_for_device = True

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        stored: Sequence[Packed | Tensor],
        biases: Sequence[Tensor],
    ) -> None:
        """`stored`: the weights of both products, packed or E × rows × columns (views of any strides)."""
        self._dtype, self._stored, self._biases = dtype, stored, biases
        self._limit, self._alpha = config.swiglu_limit, config.swiglu_alpha
        self._count = config.experts
        per_expert = 3 * config.hidden * config.intermediate * dtype.itemsize
        self._keeps = per_expert * config.experts * config.layers <= KEPT_FLOAT_BYTES
        self._kept: list[Rows] = []
        self._joint: Rows | None = None

    def _as_floats(self, expert: int) -> Floats:
        """One expert's rows in the compute type."""
        w1, w2 = (
            each[expert].to(self._dtype).contiguous()
            if isinstance(each, Tensor)
            else ops.dequantise_mxfp4(each[0][expert], each[1][expert], self._dtype)
            for each in self._stored
        )
        b1, b2 = (biases[expert] for biases in self._biases)
        return w1, b1, w2, b2

    def rows(self, expert: int) -> Rows:
        return self._kept[expert] if self._kept else self._as_floats(expert)

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """x T×H, chosen and shares T×k; returns T×H."""
        if self._keeps and not self._kept:
            floats = [self._as_floats(expert) for expert in range(self._count)]
            self._joint, self._kept = _joined(floats), [_packed(*each) for each in floats]
        if len(x) == 1:
            return self._one_token(x, chosen, shares)
        if self._joint is not None and len(x) * self._count <= DENSE_ROWS:
            return self._all(self._joint, x, chosen, shares)
        return self._many(x, chosen, shares)

    def _one_token(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        rows = [self.rows(expert) for expert in chosen[0].tolist()]
        first = torch.cat([linear(x, w1, b1) for w1, b1, _, _ in rows])
        inner = torch.split(ops.swiglu(first, self._limit, self._alpha), 1)
        outs = [linear(own, w2, b2) for own, (_, _, w2, b2) in zip(inner, rows, strict=True)]
        return torch.mm(shares, torch.cat(outs))

    def _all(self, joint: Rows, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """Runs every expert on every token: for few tokens, two large products take less time than many. The
        shares scale what enters the second product, so that its sum is over the experts too."""
        first, b1, second, b2 = joint
        weights = torch.zeros(len(x), self._count, dtype=x.dtype, device=x.device).scatter_(1, chosen, shares)
        inner = ops.swiglu(linear(x, first, b1), self._limit, self._alpha)
        scaled = inner.view(len(x), self._count, -1) * weights.unsqueeze(2)
        return torch.addmm(linear(scaled.flatten(1), second), weights, b2)

    def _many(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """Sorts tokens by expert, so that each expert becomes floats once and multiplies all its tokens."""
        flat = chosen.flatten()
        order = flat.argsort()
        owners = order // chosen.shape[1]
        counts = torch.bincount(flat, minlength=self._count).tolist()
        parts = enumerate(torch.split(x.index_select(0, owners), counts))
        limits = self._limit, self._alpha
        result = torch.cat([ops.expert(own, *self.rows(at), *limits) for at, own in parts if len(own)])
        result *= shares.flatten().index_select(0, order).unsqueeze(1)
        return torch.zeros_like(x).index_add_(0, owners, result)


def _packed(w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Rows:
    """In 16 bits where that is exact: a token reads half as much."""
    return halves_where_exact(w1), b1, halves_where_exact(w2), b2


def _joined(floats: Sequence[Floats]) -> Rows:
    """All experts as one matrix for each product: w1 E·2I × H, b1 E·2I, w2 H × E·I, b2 E×H."""
    w1, b1, w2, b2 = zip(*floats, strict=True)
    return _packed(torch.cat(w1), torch.cat(b1), torch.cat(w2, 1), torch.stack(b2))
