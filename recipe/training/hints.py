"""Hints: losses for intermediate steps, in addition to the next token.

To get from a word to the name that contains it, two layers must cooperate: an early one writes, at each token
of a declared name, how that name begins; a late one finds the token and outputs what the first wrote. The
next token alone teaches this slowly, because each half is nearly useless without the other. So training also
asks for both directly:

- carry: at each further token of a declared name, the code of the name's first token must be readable.
- look: before the thought names a function, or a call contains a value, heads of the last layer must look at
  its beginning.
- hold: at each further token of a value, and at the name of its parameter after it ("Rome for city"), the
  beginning of the value must be readable.
- tag: every token must show whether it begins a value, continues one, or is part of none.
- match: words of a function's purpose must look at similar words of the request.
- tell: what those heads carry of a word without learned rows must separate it from 200,000 others: its first
  piece's code and its own must be readable from their values.

The trained model pays nothing for them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.tiny.codes import CODE_DIM, VOCABULARY, Longs, codes_of, own_codes
from inference.tiny.shape import Shape
from recipe.network.model import Layer, normalise, rotate
from recipe.network.wiring import MATCHING
from recipe.text.vocabulary import token_table
from recipe.training.marks import Marks
from recipe.training.rows import placed

_CARRIED_TO = -2  # the layer, from the end, at whose input a name's beginning must be readable
_COPYING_GROUP = 0  # of the last layer's heads, which look at the beginning of a copy
_FIRST_GROUPS = 2  # groups whose values show a word's first piece; the other shows its own code
# The weight of each, relative to the loss.
_WEIGHTS = {"carry": 0.02, "hold": 0.02, "tag": 0.04, "look": 0.01, "match": 0.03, "tell": 0.1}
# For a model that starts from a trained one, which already satisfies most hints: their sum was larger than
# the loss of its own turns, which matters more.
_CAREFUL = 0.2


@cache
def _codes(device: torch.device) -> tuple[Tensor, Tensor]:
    """For every token, the code of its word's first piece, and its own."""
    table = token_table()
    first, own = codes_of(table.pieces[:, 0]), own_codes(table, np.arange(VOCABULARY, dtype=np.int32))
    return placed(first.astype(np.int8), device), placed(own.astype(np.int8), device)


class Hints(nn.Module):
    """Watches a batch pass through the layers and sums the losses of the hints."""

    def __init__(self, shape: Shape, *, careful: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self.weight = _CAREFUL if careful else 1.0
        self.read = nn.Parameter(torch.zeros(shape.hidden_size, CODE_DIM))
        groups, size = shape.num_key_value_heads, shape.head_dim
        self.read_first = nn.Parameter(torch.zeros(_FIRST_GROUPS * size, CODE_DIM))
        self.read_own = nn.Parameter(torch.zeros((groups - _FIRST_GROUPS) * size, CODE_DIM))
        self.read_tag = nn.Parameter(torch.zeros(shape.hidden_size, 3))
        self.begin(None)

    def begin(self, marks: Marks | None) -> None:
        self.marks = marks
        self.loss = self.read.new_zeros(())
        self.measured: dict[str, Tensor] = {}

    def see(self, place: int, x: Tensor, layer: Layer, cos: Tensor, sin: Tensor) -> None:
        if self.marks is None:
            return
        layers = self.shape.num_hidden_layers
        if place == layers + _CARRIED_TO and len(self.marks.carried):
            self._begins_with("carry", x, placed(self.marks.carried, x.device))
        if place == layers + _CARRIED_TO and len(self.marks.held):
            self._begins_with("hold", x, placed(self.marks.held, x.device))
        if place == layers - 1 and len(self.marks.tagged):
            self._tagged(x, placed(self.marks.tagged, x.device))
        if place == layers - 1 and len(self.marks.looked):
            self._looked("look", x, layer, (cos, sin), self.marks.looked, _COPYING_GROUP)
        if place == layers + MATCHING and len(self.marks.matched):
            group = self.shape.num_key_value_heads - 1
            self._looked("match", x, layer, (cos, sin), self.marks.matched, group)
        if place == layers - 1 and len(self.marks.identified):
            self._identified(x, layer, placed(self.marks.identified, x.device))

    def _lacks(self, hint: str, lacking: Tensor) -> None:
        self.loss = self.loss + self.weight * _WEIGHTS[hint] * lacking

    def _begins_with(self, hint: str, x: Tensor, marks: Tensor) -> None:
        rows, columns, tokens = marks.unbind(1)
        read = normalise(x[rows, columns], x.new_ones(()), self.shape.rms_norm_eps) @ self.read
        lacking = F.mse_loss(read, _codes(x.device)[0][tokens].float())
        self.measured[hint] = lacking.detach()
        self._lacks(hint, lacking)

    def _tagged(self, x: Tensor, marks: Tensor) -> None:
        rows, columns, tags = marks.unbind(1)
        scores = normalise(x[rows, columns], x.new_ones(()), self.shape.rms_norm_eps) @ self.read_tag
        lacking = F.cross_entropy(scores, tags)
        self.measured["tag"] = lacking.detach()
        self._lacks("tag", lacking)

    def _looked(
        self, hint: str, x: Tensor, layer: Layer, turns: tuple[Tensor, Tensor], marks: Longs, group: int
    ) -> None:
        """Heads of this group must look at the marked places; -1 is the sink."""
        shape, attention, (cos, sin) = self.shape, layer.self_attn, turns
        rows, columns, begins = placed(marks, x.device).unbind(1)
        size, per_group = shape.head_dim, shape.num_attention_heads // shape.num_key_value_heads
        kept, inverse = (placed(part, x.device) for part in np.unique(marks[:, 0], return_inverse=True))
        x = normalise(x[kept], layer.input_layernorm, shape.rms_norm_eps)
        at = slice(group * size, (group + 1) * size)
        keys = rotate(F.linear(x, attention.k_proj.weight[at], attention.k_proj.bias[at]), cos, sin)
        of = slice(group * per_group * size, (group + 1) * per_group * size)
        unturned = F.linear(x[inverse, columns], attention.q_proj.weight[of], attention.q_proj.bias[of])
        queries = rotate(unturned.view(-1, per_group, size), cos[columns, None], sin[columns, None])
        scores = torch.einsum("phd,pld->phl", queries, keys[inverse]) / size**0.5
        later = torch.arange(scores.shape[2], device=x.device) > columns[:, None, None]
        sinks = attention.sinks[of.start // size : of.stop // size].expand(len(rows), per_group)
        scores = torch.cat((scores.masked_fill(later, float("-inf")), sinks.unsqueeze(2)), dim=2)
        wanted = torch.where(begins < 0, scores.shape[2] - 1, begins)
        looks = scores.log_softmax(2).gather(2, wanted[:, None, None].expand(-1, per_group, 1))
        self.measured[hint] = looks.detach().exp().mean()
        self._lacks(hint, -looks.mean())

    def _identified(self, x: Tensor, layer: Layer, marks: Tensor) -> None:
        rows, columns, tokens = marks.unbind(1)
        eps = self.shape.rms_norm_eps
        brought = layer.self_attn.v_proj(normalise(x[rows, columns], layer.input_layernorm, eps))
        values = brought.split((len(self.read_first), len(self.read_own)), dim=1)
        codes = (each[tokens].float() for each in _codes(x.device))
        lacking = x.new_zeros(())
        for value, read, wanted in zip(values, (self.read_first, self.read_own), codes, strict=True):
            lacking = lacking + F.mse_loss(normalise(value, x.new_ones(()), eps) @ read, wanted)
        self.measured["tell"] = lacking.detach() / 2
        self._lacks("tell", lacking)
