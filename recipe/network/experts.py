"""The experts in training: the best for every token, each on its rows, summed by their shares."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.tiny.shape import Shape
from recipe.network.quantise import straight_through


def swiglu(x: Tensor, limit: float) -> Tensor:
    gate, linear = x[..., 0::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    return gate * torch.sigmoid(1.702 * gate) * (linear + 1)


def weighted(found: Tensor, shares: Tensor) -> Tensor:
    """The outputs of a token's experts (tokens x experts x hidden), summed by share in float32."""
    return (found.float() * shares.unsqueeze(-1)).sum(1)


class Experts(nn.Module):
    """Top-k experts for every token: rows sorted by expert, one product for each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        count, hidden, inner = shape.num_local_experts, shape.hidden_size, shape.intermediate_size
        self.router = nn.Linear(hidden, count)
        self.gate_up_proj = nn.Parameter(torch.randn(count, 2 * inner, hidden) / math.sqrt(hidden))
        self.gate_up_proj_bias = nn.Parameter(torch.zeros(count, 2 * inner))
        self.down_proj = nn.Parameter(torch.randn(count, hidden, inner) / math.sqrt(inner) * 0.3)
        self.down_proj_bias = nn.Parameter(torch.zeros(count, hidden))
        self.quantised = False

    def weights(self) -> tuple[Tensor, Tensor]:
        if self.quantised:
            return straight_through(self.gate_up_proj), straight_through(self.down_proj)
        return self.gate_up_proj, self.down_proj

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and how unevenly tokens use the experts (1 is even)."""
        top = self.shape.num_experts_per_tok
        # Small differences decide which experts are best.
        with torch.autocast(x.device.type, enabled=False):
            scores = self.router(x.float())
        best, chosen = scores.topk(top, dim=-1)
        shares = best.softmax(-1)
        whose, order = chosen.flatten().sort(stable=True)
        # The place of each token's experts in that order.
        back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=x.device))
        inputs = x.index_select(0, order // top)
        belongs = whose.unsqueeze(1) == torch.arange(self.shape.num_local_experts, device=x.device)
        counts = belongs.sum(0)
        outputs = self._grouped(inputs, belongs, counts) if x.is_cuda else self._each(inputs, counts)
        mixed = weighted(outputs.index_select(0, back).view(*shares.shape, -1), shares)
        fractions = counts / counts.sum()
        uneven = self.shape.num_local_experts * (fractions * scores.softmax(-1).mean(0)).sum()
        return mixed, uneven

    def _each(self, inputs: Tensor, counts: Tensor) -> Tensor:
        up, down = (weight.unbind(0) for weight in self.weights())
        up_bias, down_bias = self.gate_up_proj_bias.unbind(0), self.down_proj_bias.unbind(0)
        outputs = [
            F.linear(
                swiglu(F.linear(part, up[e], up_bias[e]), self.shape.swiglu_limit),
                down[e],
                down_bias[e],
            )
            for e, part in enumerate(torch.split(inputs, counts.tolist()))
        ]
        return torch.cat(outputs)

    def _grouped(self, inputs: Tensor, belongs: Tensor, counts: Tensor) -> Tensor:
        """The same on a GPU, without waiting for the number of rows of each expert."""
        ends, belongs = counts.cumsum(0).int(), belongs.to(inputs.dtype)

        def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            return F.grouped_mm(x, weight.to(x.dtype).mT, offs=ends) + belongs @ bias.to(x.dtype)

        up, down = self.weights()
        inner = swiglu(product(inputs, up, self.gate_up_proj_bias), self.shape.swiglu_limit)
        return product(inner, down, self.down_proj_bias)
