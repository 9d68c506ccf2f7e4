"""Hints: what training says about steps in between, beside what comes next.

To go from a word to the name that it stands in, two layers have to work together: an early one writes at
each token of a declared name how that name begins, and a late one finds the token and says what is written
there. The next token alone teaches this slowly: where the first is vague, the second is hardly worth having.
So both are also asked directly. At each further token of a declared name, the code of the name's first one
has to be there to be read; where a function is about to be named in the thought, heads of the last layer
have to look at where its name begins. Neither costs anything once the model is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.tiny.codes import CODE_DIM, Longs, codes_of
from inference.tiny.model import Layer, normalise, rotate
from inference.tiny.shape import Shape
from inference.tiny.talk import PAST, Talk, tokens_of
from inference.tiny.vocabulary import ordinary_bytes, token_table

_CARRIED_TO = -2  # the layer, from the last, at whose input a name's beginning has to be read
_GROUP = 0  # of the last layer's heads, that look at the name
_CARRYING, _LOOKING = 0.02, 0.01  # how much they count beside the loss
_LONGEST = 14  # tokens of a name


@dataclass(frozen=True, slots=True)
class Marks:
    """Places in a batch: rows, columns, and what is asked of each."""

    carried: Longs  # x 3: row, column, the first token of the name
    looked: Longs  # x 3: row, column, the column where the name begins


def declared_names(tokens: Sequence[int]) -> dict[tuple[int, ...], int]:
    """The names behind `type`, in their tokens, and where each begins."""
    found: dict[tuple[int, ...], int] = {}
    (behind,) = tokens_of("type")
    for place in range(2, len(tokens)):
        if tokens[place - 1] == behind and ordinary_bytes(tokens[place - 2]).endswith(b"\n"):
            texts = [ordinary_bytes(token) for token in tokens[place : place + _LONGEST]]
            end = next((at for at, text in enumerate(texts) if text.startswith(b" =")), 0)
            # Without that space it is a parameter that is called so.
            if end and texts[0].startswith(b" "):
                found[tuple(tokens[place : place + end])] = place
    return found


def _namings(talk: Talk, names: dict[tuple[int, ...], int]) -> Iterator[tuple[int, int]]:
    """Where a thought comes to name a function, and where that name is declared."""
    tokens, before = talk.tokens, list(tokens_of(", so"))
    for turn in (turn for turn in talk.turns if turn.kind != PAST):
        for place in range(turn.start, turn.end):
            if tokens[place : place + len(before)] != before:
                continue
            said = place + len(before)
            for name, begin in names.items():
                if tuple(tokens[said : said + len(name)]) == name:
                    yield said - 1, begin


def marks_of(talks: Sequence[Talk]) -> Marks:
    carried: list[tuple[int, int, int]] = []
    looked: list[tuple[int, int, int]] = []
    for row, talk in enumerate(talks):
        names = declared_names(talk.tokens)
        for name, begin in names.items():
            carried += [(row, begin + further, name[0]) for further in range(1, len(name))]
        if len(names) > 1:
            looked += [(row, place, begin) for place, begin in _namings(talk, names)]
    return Marks(np.array(carried, np.int64).reshape(-1, 3), np.array(looked, np.int64).reshape(-1, 3))


class Hints(nn.Module):
    """Looks on while a batch goes through the layers, and adds up what it finds lacking."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.read = nn.Parameter(torch.zeros(shape.hidden_size, CODE_DIM))
        self.begin(None)

    def begin(self, marks: Marks | None) -> None:
        self.marks = marks
        self.loss = torch.zeros(())
        self.measured: dict[str, float] = {}

    def see(self, place: int, x: Tensor, layer: Layer, cos: Tensor, sin: Tensor) -> None:
        if self.marks is None:
            return
        layers = self.shape.num_hidden_layers
        if place == layers + _CARRIED_TO and len(self.marks.carried):
            self._carried(x, torch.from_numpy(self.marks.carried))
        if place == layers - 1 and len(self.marks.looked):
            self._looked(x, layer, cos, sin, torch.from_numpy(self.marks.looked))

    def _carried(self, x: Tensor, marks: Tensor) -> None:
        rows, columns, tokens = marks.unbind(1)
        first = token_table().pieces[tokens.numpy(), 0]
        wanted = torch.from_numpy(codes_of(first))
        read = normalise(x[rows, columns], torch.ones(()), self.shape.rms_norm_eps) @ self.read
        lacking = F.mse_loss(read, wanted)
        self.measured["carry"] = lacking.item()
        self.loss = self.loss + _CARRYING * lacking

    def _looked(self, x: Tensor, layer: Layer, cos: Tensor, sin: Tensor, marks: Tensor) -> None:
        shape, attention = self.shape, layer.self_attn
        rows, columns, begins = marks.unbind(1)
        size, per_group = shape.head_dim, shape.num_attention_heads // shape.num_key_value_heads
        kept, inverse = torch.unique(rows, return_inverse=True)
        x = normalise(x[kept], layer.input_layernorm, shape.rms_norm_eps)
        at = slice(_GROUP * size, (_GROUP + 1) * size)
        keys = rotate(F.linear(x, attention.k_proj.weight[at], attention.k_proj.bias[at]), cos, sin)
        of = slice(_GROUP * per_group * size, (_GROUP + 1) * per_group * size)
        asked = F.linear(x[inverse, columns], attention.q_proj.weight[of], attention.q_proj.bias[of])
        queries = rotate(asked.view(-1, per_group, size), cos[columns, None], sin[columns, None])
        scores = torch.einsum("phd,pld->phl", queries, keys[inverse]) / size**0.5
        later = torch.arange(scores.shape[2]) > columns[:, None, None]
        sinks = attention.sinks[of.start // size : of.stop // size].expand(len(rows), per_group)
        scores = torch.cat((scores.masked_fill(later, float("-inf")), sinks.unsqueeze(2)), dim=2)
        looks = scores.log_softmax(2).gather(2, begins[:, None, None].expand(-1, per_group, 1))
        self.measured["look"] = looks.exp().mean().item()
        self.loss = self.loss - _LOOKING * looks.mean()
