"""The arithmetic of gpt-oss in plain PyTorch: the oracle that fused kernels must agree with.

In go tensors, out come tensors; no op keeps state, and none knows of layers, caches or checkpoints. Shapes:
T queries, L keys, H hidden, N heads, K KV heads, D head size, E experts, I intermediate, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from inference.models.config import RopeConfig

# The 16 values of a 4-bit float with 2 exponent bits and 1 mantissa bit, by their code.
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
SCALE_BIAS = 127
# Scores held at once by attention: 2^23 floats are 32 MiB, so that a long prompt allocates no T·L per head.
SCORES_AT_ONCE = 1 << 23


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x·w / √(mean x² + eps) over the last dimension, in float32."""
    return functional.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)


def rope_frequencies(rope: RopeConfig, head_dim: int) -> tuple[Tensor, float]:
    """Radians per position for each of the D/2 pairs, and YaRN's factor on cos and sin."""
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float32)
    plain = 1.0 / rope.theta ** (pairs / head_dim)
    if rope.factor <= 1.0:
        return plain, 1.0 if rope.concentration is None else rope.concentration
    low, high = (_pair_turning(turns, rope, head_dim) for turns in (rope.beta_fast, rope.beta_slow))
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = ((pairs / 2 - low) / max(high - low, 0.001)).clamp(0, 1)
    frequencies = plain / rope.factor * ramp + plain * (1 - ramp)
    concentration = 0.1 * math.log(rope.factor) + 1.0 if rope.concentration is None else rope.concentration
    return frequencies, concentration


def _pair_turning(turns: float, rope: RopeConfig, head_dim: int) -> float:
    """Which pair (a fraction) makes this many turns over the context that the model was first trained on."""
    return head_dim * math.log(rope.original_context / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))


def rope_tables(rope: RopeConfig, head_dim: int, positions: int) -> tuple[Tensor, Tensor]:
    """cos and sin, each positions × D, laid out for `apply_rope`: the halves' signs are in the sine."""
    frequencies, concentration = rope_frequencies(rope, head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float32), frequencies)
    cos, sin = angles.cos() * concentration, angles.sin() * concentration
    return torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x (T × N × D) by tables (T × D); the pairs are (i, i + D/2)."""
    swapped = x.roll(x.shape[-1] // 2, -1)
    return torch.addcmul(x * cos.unsqueeze(1), swapped, sin.unsqueeze(1)).to(x.dtype)


def attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    sinks: Tensor,
    query_positions: Tensor | None = None,
    key_positions: Tensor | None = None,
    window: int | None = None,
) -> Tensor:
    """Grouped-query attention with a sink: one more logit per head, in the denominator only.

    query T×N×D, keys and values K×L×D, sinks N; out T×N·D. Without positions every query sees every key
    (decoding: the cache holds what one token may see). With them a query sees keys that are not after it,
    not before position 0, and within the window.
    """
    count, heads, size = query.shape
    grouped = query.view(count, keys.shape[0], -1, size).permute(1, 2, 0, 3)  # K × N/K × T × D
    sink = sinks.view(keys.shape[0], -1, 1, 1).to(query.dtype)
    if query_positions is None or key_positions is None:
        out = _attend(grouped, keys, values, sink, None)
    else:
        rows = max(1, SCORES_AT_ONCE // (heads * keys.shape[1]))
        parts = [
            _attend(
                grouped[:, :, at : at + rows],
                keys,
                values,
                sink,
                hidden_keys(query_positions[at : at + rows], key_positions, window),
            )
            for at in range(0, count, rows)
        ]
        out = parts[0] if len(parts) == 1 else torch.cat(parts, 2)
    return out.permute(2, 0, 1, 3).reshape(count, heads * size)


def hidden_keys(query_positions: Tensor, key_positions: Tensor, window: int | None) -> Tensor:
    """T × L, true where the query must not see the key. Positions below 0 mark empty places of a cache."""
    queries, keys = query_positions.unsqueeze(1), key_positions.unsqueeze(0)
    hidden = (keys > queries) | (keys < 0)
    return hidden if window is None else hidden | (keys <= queries - window)


def _attend(query: Tensor, keys: Tensor, values: Tensor, sink: Tensor, hidden: Tensor | None) -> Tensor:
    kv_heads, group, count, size = query.shape
    flat = query.reshape(kv_heads, group * count, size) * size**-0.5
    scores = torch.bmm(flat, keys.transpose(1, 2)).view(kv_heads, group, count, -1)
    if hidden is not None:
        scores = scores.masked_fill_(hidden, -math.inf)
    scores = torch.cat((scores, sink.expand(-1, -1, count, -1)), -1)
    weights = torch.softmax(scores, -1, dtype=torch.float32).to(values.dtype)
    out = torch.bmm(weights[..., :-1].reshape(kv_heads, group * count, -1), values)
    return out.view(kv_heads, group, count, size)


def route(x: Tensor, weight: Tensor, bias: Tensor, experts_per_token: int) -> tuple[Tensor, Tensor]:
    """The k experts of each token and their shares: the best k first, the softmax over those k alone."""
    best = torch.topk(functional.linear(x, weight, bias), experts_per_token, dim=-1)
    return best.indices, torch.softmax(best.values, -1, dtype=torch.float32).to(x.dtype)


def swiglu(x: Tensor, limit: float, alpha: float) -> Tensor:
    """Rows interleaved: even ones gate, odd ones linear. g·σ(αg)·(l+1), g ≤ limit, |l| ≤ limit."""
    gate = x[..., ::2].clamp(max=limit)
    linear = x[..., 1::2].clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (linear + 1)


def dequantise_mxfp4(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """MXFP4 rows as floats: blocks … × B × 16 bytes, scales … × B, out … × 32·B.

    A byte holds two values, the low half first. Each block of 32 is scaled by 2^(scale − 127).
    """
    pairs = _pairs_by_byte(blocks.device)[blocks.int()]  # … × B × 16 × 2, float32
    exponents = (scales.int() - SCALE_BIAS)[..., None, None]
    return torch.ldexp(pairs, exponents).flatten(-3).to(dtype)


_pairs: dict[torch.device, Tensor] = {}


def _pairs_by_byte(device: torch.device) -> Tensor:
    """256 × 2: both values of every byte. One lookup of pairs costs half of two lookups of nibbles."""
    if device not in _pairs:
        values = torch.tensor(FP4_VALUES)
        byte = torch.arange(256)
        _pairs[device] = torch.stack((values[byte & 15], values[byte >> 4]), -1).to(device)
    return _pairs[device]


def expert(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, limit: float, alpha: float) -> Tensor:
    """One expert on its tokens: w1 2I×H, w2 H×I."""
    return functional.linear(swiglu(functional.linear(x, w1, b1), limit, alpha), w2, b2)
