"""Attention with sinks for training, in blocks of queries, of large products and fused softmaxes.

On a CPU, torch's own kernel would take half of a step's time. Here the heads of a group are stacked, so that
they read its keys in one product; one pass over the scores follows, in bf16. A sink is one more key before
all others, in dimensions of its own, one for each head of a group, so that the softmax needs no special case.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

_BLOCK = 128  # queries at a time
_ROOM = 8  # dimensions for sinks: the most heads that may share a group


@cache
def _mask(queries: int, keys: int, ahead: int, window: int | None, like: tuple[Any, ...]) -> Tensor:
    """0 if a query sees a key, where key 0 is the sink; query 0 sees keys up to `ahead`.

    `like`: its type and device.
    """
    dtype, device = like
    distance = (
        torch.arange(queries, device=device)[:, None] + ahead - torch.arange(keys, device=device)[None, :]
    )
    hidden = distance < 0
    if window is not None:
        hidden |= distance >= window
    hidden[:, 0] = False
    return torch.zeros(queries, keys, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))


def _kind(x: Tensor) -> tuple[torch.dtype, torch.device]:
    return x.dtype, x.device


class _Blocks(torch.autograd.Function):
    """q: batch x length x groups x heads of a group x size; k, v: batch x groups x 1 + length x size."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
        batch, length, groups, heads, _ = q.shape
        out = q.new_empty(batch, length, groups, heads, v.shape[-1])
        ctx.window, ctx.parts = window, []
        for row, start, end, begin in _blocks(batch, length, window):
            count = end - start
            keys, values = (_seen(x[row], begin, end) for x in (k, v))
            scores = torch.bmm(_stacked(q[row, start:end]), keys.mT).view(groups, heads, count, -1)
            if window is None:  # queries see all keys before the block
                scores[..., start + 1 :].add_(_mask(count, count + 1, 1, None, _kind(q))[:, 1:])
            else:
                scores.add_(_mask(count, end - begin + 1, start - begin + 1, window, _kind(q)))
            weights = scores.softmax(-1).view(groups, heads * count, -1)
            out[row, start:end] = _unstacked(torch.bmm(weights, values), heads)
            ctx.parts.append(weights)
        ctx.save_for_backward(q, k, v)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        q, k, v = ctx.saved_tensors
        batch, length, _, heads, _ = q.shape
        dq = torch.empty_like(q)
        dk, dv = (torch.zeros(x.shape, dtype=torch.float32) for x in (k, v))
        places = _blocks(batch, length, ctx.window)
        for (row, start, end, begin), weights in zip(places, ctx.parts, strict=True):
            keys, values = (_seen(x[row], begin, end) for x in (k, v))
            queries, above = (_stacked(x[row, start:end]) for x in (q, gradient))
            scores = torch._softmax_backward_data(torch.bmm(above, values.mT), weights, -1, weights.dtype)
            dq[row, start:end] = _unstacked(torch.bmm(scores, keys), heads)
            for whole, part in (
                (dk[row], torch.bmm(scores.mT, queries)),
                (dv[row], torch.bmm(weights.mT, above)),
            ):
                whole[:, 0] += part[:, 0]
                whole[:, begin + 1 : end + 1] += part[:, 1:]
        return dq, dk.to(k.dtype), dv.to(v.dtype), None


def _stacked(queries: Tensor) -> Tensor:
    """Groups x heads * queries x size, of queries x groups x heads x size."""
    count, groups, heads, size = queries.shape
    return queries.permute(1, 2, 0, 3).reshape(groups, heads * count, size)


def _unstacked(found: Tensor, heads: int) -> Tensor:
    groups, rows, size = found.shape
    return found.view(groups, heads, rows // heads, size).permute(2, 0, 1, 3)


def _blocks(batch: int, length: int, window: int | None) -> list[tuple[int, int, int, int]]:
    """Row, first query, the end of its queries, first key."""
    return [
        (row, start, min(length, start + _BLOCK), 0 if window is None else max(0, start - window + 1))
        for row in range(batch)
        for start in range(0, length, _BLOCK)
    ]


def _seen(keys: Tensor, begin: int, end: int) -> Tensor:
    """The sink and the keys from `begin` to `end`."""
    if begin == 0:
        return keys[:, : end + 1]
    return torch.cat((keys[:, :1], keys[:, begin + 1 : end + 1]), dim=1)


def _fused(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """The same with torch's own kernel: on a GPU the many products of blocks would take far longer.

    Not with cuDNN's: it needs half a second to prepare for every new shape, and batches have hundreds.
    """
    batch, length, groups, heads, size = q.shape
    queries = q.permute(0, 2, 3, 1, 4).reshape(batch, groups, heads * length, size)
    mask = _mask(length, length + 1, 1, window, _kind(q)).repeat(heads, 1)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        found = F.scaled_dot_product_attention(queries, k, v, attn_mask=mask, scale=1.0)
    return found.view(batch, groups, heads, length, -1).permute(0, 3, 1, 2, 4)


def sink_attention(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor, window: int | None) -> Tensor:
    """Causal attention of batch x length x heads x size, with keys and values per group of heads.

    Every query sees at most `window` keys, if given.
    """
    batch, length, groups, size = k.shape
    heads = len(sinks) // groups
    k, v = k.transpose(1, 2), v.transpose(1, 2)
    q = q.view(batch, length, groups, heads, size) * size**-0.5
    whose = torch.eye(heads, _ROOM, dtype=q.dtype, device=q.device).expand(
        batch, length, groups, heads, _ROOM
    )
    q = torch.cat((q, whose), dim=-1)
    sink = F.pad(sinks.view(groups, heads), (size, _ROOM - heads)).to(k.dtype)
    k = torch.cat((sink.view(1, groups, 1, -1).expand(batch, -1, -1, -1), F.pad(k, (0, _ROOM))), dim=2)
    v = F.pad(v, (0, 0, 1, 0))
    if q.is_cuda:
        return _fused(q, k, v, window).flatten(2)
    result: Tensor = _Blocks.apply(q, k, v, window)  # type: ignore[no-untyped-call]
    return result.flatten(2)
