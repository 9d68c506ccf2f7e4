"""The gpt-oss architecture for training: batched, differentiable, float32, with the same numbers as serving.

Attention with sinks, some layers with a sliding window, YaRN, top-k experts with the softmax over the k,
clamped interleaved SwiGLU, biases. Parameters have the checkpoint's names and shapes, with experts first and
their input dimension last, so that MXFP4 blocks run along it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.tiny.codes import CODE_DIM, EDGES, FIRST, FIXED, MEANING, MEANING_DIM, SPELLING, THIRD
from inference.tiny.shape import Shape
from recipe.network import experts
from recipe.network.attention import sink_attention

# Initial scales.
_LEARNED = 0.3  # the learned rows, relative to the codes
_LIKENESS = 0.35  # the edges of words, relative to their first piece
_MEANING = 0.6  # one number of a meaning's vector: a word's vector has a length of about 10, codes 25
_THIRD = 1.75  # one sign of a third piece's code: few words have one
_LOUD = 2.0  # the embedding, relative to the layers' output: smaller, rare codes are lost after two layers


@lru_cache(maxsize=512)
def rotation(shape: Shape, length: int, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """YaRN's cos and sin, length x head_dim / 2, including the concentration."""
    half = shape.head_dim // 2
    extrapolated = 1.0 / shape.rope_theta ** (torch.arange(half, dtype=torch.float64) / half)
    interpolated = extrapolated / shape.rope_factor

    def dimension(rotations: float) -> float:
        ratio = shape.original_context / (rotations * 2 * math.pi)
        return half * math.log(ratio) / math.log(shape.rope_theta)

    low, high = dimension(shape.beta_fast), dimension(shape.beta_slow)
    ramp = ((torch.arange(half, dtype=torch.float64) - low) / (high - low)).clamp(0, 1)
    frequencies = interpolated * ramp + extrapolated * (1 - ramp)
    angles = torch.outer(torch.arange(length, dtype=torch.float64), frequencies)
    concentration = 0.1 * math.log(shape.rope_factor) + 1.0
    with torch.inference_mode(False):  # the cached result also serves training
        cos, sin = ((part * concentration).float().to(device) for part in (angles.cos(), angles.sin()))
    return cos, sin


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`x` rotated by its place, computed in float32, in the precision of `x`."""
    first, second = x.float().chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def normalise(x: Tensor, weight: Tensor, eps: float, kind: torch.dtype = torch.float32) -> Tensor:
    return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight).to(kind)


def compile_small_steps() -> None:
    """Compiles these functions to one pass over the memory each, instead of one per operation.

    It takes half a minute and a C++ compiler: for training on a CPU, not for tests. On a GPU every new shape
    compiled them again, for a minute each time.
    """
    steps: list[tuple[str, Callable[..., Tensor]]] = [
        (__name__, normalise),
        (__name__, rotate),
        (experts.__name__, experts.weighted),
    ]
    for module, step in steps:
        setattr(sys.modules[module], step.__name__, torch.compile(step, dynamic=True))


class Attention(nn.Module):
    def __init__(self, shape: Shape, sliding: bool) -> None:
        super().__init__()
        self.shape = shape
        self.sliding = sliding
        heads, kv = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, heads)
        self.k_proj = nn.Linear(shape.hidden_size, kv)
        self.v_proj = nn.Linear(shape.hidden_size, kv)
        self.o_proj = nn.Linear(heads, shape.hidden_size)
        self.sinks = nn.Parameter(torch.zeros(shape.num_attention_heads))
        nn.init.normal_(self.o_proj.weight, std=0.03)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        size = self.shape.head_dim
        q, k, v = (part(x) for part in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (part.view(batch, length, -1, size) for part in (q, k, v))
        q, k = (rotate(part, cos.unsqueeze(1), sin.unsqueeze(1)) for part in (q, k))
        mixed = sink_attention(q, k, v, self.sinks, self.shape.sliding_window if self.sliding else None)
        result: Tensor = self.o_proj(mixed)
        return result


class Layer(nn.Module):
    def __init__(self, shape: Shape, sliding: bool) -> None:
        super().__init__()
        self.shape = shape
        self.input_layernorm = nn.Parameter(torch.ones(shape.hidden_size))
        self.post_attention_layernorm = nn.Parameter(torch.ones(shape.hidden_size))
        self.self_attn = Attention(shape, sliding)
        self.mlp = experts.Experts(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, in_bf16: bool) -> tuple[Tensor, Tensor]:
        eps, kind = self.shape.rms_norm_eps, torch.bfloat16 if in_bf16 else torch.float32
        x = x + self.self_attn(normalise(x, self.input_layernorm, eps, kind), cos, sin)
        normed = normalise(x, self.post_attention_layernorm, eps, kind)
        mixed, uneven = self.mlp(normed.flatten(0, 1))
        return x + mixed.view_as(x), uneven


Onlooker = Callable[[int, Tensor, Layer, Tensor, Tensor], None]  # place, input, layer, cos, sin


def initial_map(width: int, hidden: int) -> Tensor:
    """Codes in separate dimensions while there is room, the rest across them."""
    blocks = [torch.linalg.qr(torch.randn(width, width)).Q for _ in range(-(-FIXED // width))]
    return F.pad(torch.cat(blocks)[:FIXED] * math.sqrt(width / CODE_DIM), (0, hidden - width))


def thirds_have_room(shape: Shape) -> bool:
    """Whether third pieces have dimensions apart from those of codes, learned rows and meanings."""
    return shape.hidden_size >= shape.learned_width + MEANING_DIM + CODE_DIM


def maps_into_the_room(shape: Shape) -> tuple[Tensor, Tensor | None]:
    """The maps of meanings, and of third pieces if there is room, into the last dimensions."""
    room, both = min(shape.hidden_size, MEANING_DIM + CODE_DIM), thirds_have_room(shape)
    directions = nn.init.orthogonal_(torch.empty(room if both else MEANING_DIM, room))
    directions = F.pad(directions, (shape.hidden_size - room, 0))
    return directions[:MEANING_DIM] * _MEANING, directions[MEANING_DIM:] * _THIRD if both else None


class TinyGptOss(nn.Module):
    """The layers, the learned rows of the stock's tokens, and the maps for every token's fixed row."""

    def __init__(self, shape: Shape, learned: int) -> None:
        super().__init__()
        self.shape = shape
        self.learned_in = nn.Parameter(torch.randn(learned + 1, shape.learned_width) * _LOUD * _LEARNED)
        self.learned_out = nn.Parameter(torch.zeros(learned + 1, shape.learned_width))
        self.map_in = nn.Parameter(initial_map(shape.learned_width, shape.hidden_size) * _LOUD)
        self.map_out = nn.Parameter(initial_map(shape.learned_width, shape.hidden_size) * 0.05)
        with torch.no_grad():
            self.map_out[SPELLING] = 0
            for edge in EDGES:  # words with the same edges are slightly similar
                self.map_in[edge] = self.map_in[FIRST] * _LIKENESS
                self.map_out[edge] = 0
            meanings, thirds = maps_into_the_room(shape)
            self.map_in[MEANING] = meanings
            if thirds is not None:
                self.map_in[THIRD] = thirds
            self.map_out[MEANING] = 0
        self.layers = nn.ModuleList(
            Layer(shape, sliding=place in shape.sliding_layers) for place in range(shape.num_hidden_layers)
        )
        self.norm = nn.Parameter(torch.ones(shape.hidden_size))
        self.in_bf16 = False  # products

    def rows_in(self, learned: Tensor, fixed: Tensor) -> Tensor:
        """Embedding rows; `learned` are places in the learned rows, 0 for a token without one."""
        return self._row(self.learned_in, learned) + fixed @ self.map_in

    def rows_out(self, learned: Tensor, fixed: Tensor) -> Tensor:
        return self._row(self.learned_out, learned) + fixed @ self.map_out

    def _row(self, rows: Tensor, learned: Tensor) -> Tensor:
        known = F.embedding(learned, rows) * (learned > 0).unsqueeze(1)
        return F.pad(known, (0, self.shape.hidden_size - rows.shape[1]))

    def forward(self, embedded: Tensor, see: Onlooker | None = None) -> tuple[Tensor, Tensor]:
        """Normed hidden states of batch x length x hidden, and the experts' unevenness over the layers.

        `see` receives the input of each layer.
        """
        length = embedded.shape[1]
        cos, sin = rotation(self.shape, length, embedded.device)
        x, uneven = embedded, embedded.new_zeros(())
        with torch.autocast(embedded.device.type, torch.bfloat16, enabled=self.in_bf16):
            for place, layer in enumerate(self.layers):
                assert isinstance(layer, Layer)
                if see is not None:
                    see(place, x, layer, cos, sin)
                x, part = layer(x, cos, sin, self.in_bf16)
                uneven = uneven + part / len(self.layers)
        return normalise(x, self.norm, self.shape.rms_norm_eps), uneven

    def quantise_experts(self, on: bool) -> None:
        for layer in self.layers:
            assert isinstance(layer, Layer)
            layer.mlp.quantised = on
