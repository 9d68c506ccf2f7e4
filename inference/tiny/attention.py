"""Attention with sinks for training: torch's fused CPU kernel, told of the sink after the fact.

The kernel knows no sinks, but a sink only adds to the denominator: outputs shrink by a factor that the
kernel's log-sum-exp gives, and its backward pass is exact for the shrunk outputs and the larger log-sum-
exp.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class _SinkAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, mask: Tensor | None, causal: bool
    ) -> Tensor:
        whole, total = _forward(q, k, v, 0.0, causal, attn_mask=mask)
        with_sink = torch.logaddexp(total, sinks.view(1, -1, 1))
        out: Tensor = whole * (total - with_sink).exp().unsqueeze(-1)
        ctx.save_for_backward(q, k, v, out, with_sink, sinks)
        ctx.mask, ctx.causal = mask, causal
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, with_sink, sinks = ctx.saved_tensors
        (gradient,) = gradients
        dq, dk, dv = _backward(
            gradient.contiguous(), q, k, v, out, with_sink, 0.0, ctx.causal, attn_mask=ctx.mask
        )
        share = (sinks.view(1, -1, 1) - with_sink).exp()
        dsinks = -(share * (gradient * out).sum(-1)).sum((0, 2))
        return dq, dk, dv, dsinks, None, None


def _attend(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    result: Tensor = _SinkAttention.apply(q, k, v, sinks, mask, causal)  # type: ignore[no-untyped-call]
    return result


def sink_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int | None) -> Tensor:
    """Causal attention of batch x heads x length x size; `window` keys at most, if given."""
    length = q.shape[2]
    if window is None or length <= window:
        return _attend(q, k, v, sinks, None, True)
    if length <= 3 * window or length % window:
        place = torch.arange(length)
        behind = place[:, None] - place[None, :]
        mask = torch.zeros(length, length).masked_fill((behind < 0) | (behind >= window), float("-inf"))
        return _attend(q, k, v, sinks, mask, False)
    return _by_chunks(q, k, v, sinks, window)


def _by_chunks(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int) -> Tensor:
    """Chunks of `window` queries see their own chunk and the one before: linear in the length."""
    batch, heads, length, size = q.shape
    chunks = length // window

    def with_previous(x: Tensor) -> Tensor:
        parts = x.view(batch, heads, chunks, window, size)
        before = torch.cat((torch.zeros_like(parts[:, :, :1]), parts[:, :, :-1]), dim=2)
        return torch.cat((before, parts), dim=3).transpose(1, 2).reshape(-1, heads, 2 * window, size)

    query, key = torch.arange(window)[:, None] + window, torch.arange(2 * window)[None, :]
    hidden = (key > query) | (query - key >= window)
    mask = torch.zeros(chunks, 1, window, 2 * window).masked_fill(hidden, float("-inf"))
    mask[0].masked_fill_(key < window, float("-inf"))
    queries = q.view(batch, heads, chunks, window, size).transpose(1, 2).reshape(-1, heads, window, size)
    out = _attend(queries, with_previous(k), with_previous(v), sinks, mask.repeat(batch, 1, 1, 1), False)
    return out.view(batch, chunks, heads, window, size).transpose(1, 2).reshape(batch, heads, length, size)
