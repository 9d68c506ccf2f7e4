"""The arithmetic of gpt-oss in plain PyTorch: the oracle that fused kernels must agree with.

No op keeps state or knows layers, requests or checkpoints. A step of a batch is T rows, its sequences laid
end to end; `pages` maps rows to sequences and locates keys and values. Shapes: T rows, L keys, H hidden, N
heads, K KV heads, D head size, E experts, I intermediate, V vocabulary. A layer calls qkv, paged_attention,
project_out and experts_block; a step ends with head_logits, on the rows that are sampled from, and sample.
"""

from __future__ import annotations

from functools import cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from inference.ops.attention import fp8 as fp8
from inference.ops.attention import paged_attention as paged_attention
from inference.ops.attention import write_kv as write_kv
from inference.ops.halves import Matrix, linear
from inference.ops.pages import Pages
from inference.ops.rope import apply_rope as apply_rope
from inference.ops.sampling import sample as sample

# The 16 values of a 4-bit float with 2 exponent bits and 1 mantissa bit, by code.
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
SCALE_BIAS = 127


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x·w / √(mean x² + eps) over the last dimension, in float32."""
    return functional.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def qkv(
    x: Tensor,
    norm: Tensor,
    eps: float,
    weight: Matrix,
    bias: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    keys: Tensor,
    values: Tensor,
    pages: Pages,
) -> Tensor:
    """Normalises x (T×H), projects it, rotates queries and keys, and writes keys and values to their slots.

    weight is (N+2K)·D × H with rows q, k, v; cos and sin are T×D, for the rows' positions; keys and values
    are blocks×size×K×D. Returns the queries, T×N×D.
    """
    projected = linear(rms_norm(x, norm, eps), weight, bias)
    return rotate_and_write(projected, cos, sin, keys, values, pages)


def rotate_and_write(
    projected: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, pages: Pages
) -> Tensor:
    """What follows the product of `qkv`, for a finished one, T × (N+2K)·D; N may be 0."""
    kv_heads, size = keys.shape[2:]
    parts = projected.view(len(projected), -1, size)
    rotated = apply_rope(parts[:, :-kv_heads], cos, sin)
    write_kv(keys, values, rotated[:, -kv_heads:], parts[:, -kv_heads:], pages)
    return rotated[:, :-kv_heads]


def project_out(attended: Tensor, weight: Matrix, bias: Tensor | None, residual: Tensor) -> Tensor:
    """residual + attended·Wᵀ + b: attended is T × N·D, weight H × N·D, residual and result T×H."""
    return residual + linear(attended, weight, bias)


class MixtureWeights(Protocol):
    """A layer's experts in the form that suits the device."""

    waits_for_device: bool  # `forward` reads from the device, so that its step cannot be recorded

    def forward(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """x is T×H, chosen and shares T×k; returns T×H, the sums of the experts' outputs by their shares."""


def experts_block(
    x: Tensor,
    norm: Tensor,
    eps: float,
    router: Tensor,
    router_bias: Tensor,
    experts_per_token: int,
    experts: MixtureWeights,
) -> Tensor:
    """Adds to x the output of the experts for normalised x: norm, router, and k experts for each token."""
    normed = rms_norm(x, norm, eps)
    return x + experts.forward(normed, *route(normed, router, router_bias, experts_per_token))


def head_logits(x: Tensor, norm: Tensor, eps: float, head: Tensor) -> Tensor:
    """The logits (float32, R×V) of the last layer's rows; x is R×H, head H×V."""
    return (rms_norm(x, norm, eps) @ head).float()


def route(x: Tensor, weight: Tensor, bias: Tensor, experts_per_token: int) -> tuple[Tensor, Tensor]:
    """The best k experts of each token, best first, and their shares: the softmax over those k only."""
    best = torch.topk(functional.linear(x, weight, bias), experts_per_token, dim=-1)
    return best.indices, torch.softmax(best.values, -1, dtype=torch.float32).to(x.dtype)


def swiglu(x: Tensor, limit: float, alpha: float) -> Tensor:
    """g·σ(αg)·(l+1) with g ≤ limit, |l| ≤ limit; even columns of x are the gate g, odd ones the linear l."""
    gate = x[..., ::2].clamp(max=limit)
    gated = (alpha * gate).sigmoid_().mul_(gate)
    return gated.addcmul_(gated, x[..., 1::2].clamp(-limit, limit))


def dequantise_mxfp4(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts MXFP4 rows to floats: blocks are … × B × 16 bytes, scales … × B; returns … × 32·B. A byte
    holds two values, the low half first. Each block of 32 is scaled by 2^(scale − 127)."""
    pairs = _pairs_by_byte(blocks.device)[blocks.int()]  # … × B × 16 × 2, float32
    exponents = (scales.int() - SCALE_BIAS)[..., None, None]
    return torch.ldexp(pairs, exponents).flatten(-3).to(dtype)


@cache
def _pairs_by_byte(device: torch.device) -> Tensor:
    """256 × 2: both values of every byte. One lookup of a pair costs half as much as two of nibbles."""
    values, byte = torch.tensor(FP4_VALUES), torch.arange(256)
    return torch.stack((values[byte & 15], values[byte >> 4]), -1).to(device)


def expert(x: Tensor, w1: Matrix, b1: Tensor, w2: Matrix, b2: Tensor, limit: float, alpha: float) -> Tensor:
    """One expert on its tokens: w1 is 2I×H, w2 H×I."""
    return linear(swiglu(linear(x, w1, b1), limit, alpha), w2, b2)
