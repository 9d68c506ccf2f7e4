"""Initial weights that can already copy: the halves of an induction head, wired by hand.

To copy, a model must attend to the place after an earlier occurrence of the current token. Small models find
this circuit late and suddenly; if they start with it, training only has to shape it. Layer 0 writes the
previous token's embedding into a subspace of its own; layer 1 finds places where that matches the current
token, and brings the token there. In the last two layers, the token that a head attends to votes for itself
as the next token: by its word's first piece, by its second, or by its own code. Training decides where to
attend. One group of heads in between looks at words of similar meaning.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.codes import FIRST, MEANING, OWN, SECOND, THIRD
from inference.tiny.shape import Shape
from recipe.network.model import Attention, TinyGptOss, rotation, thirds_have_room

_SHARPNESS = (5.0, 5.0, 4.0, 3.0)  # of the look at the previous token, in the fastest rotations
_VOTE = 30.0
MATCHING = -3  # the layer, from the end, whose last group of heads finds words of similar meaning
_ALIKE = 1.9  # so that the same word outweighs the sink
_SAME_PIECE, _NO_WORD = 1.6, 9.0  # the scale of compared pieces; the sink, for when no word matches
_SLOW_FROM = 7 / 16  # of the rotations: from here on they hardly turn within a few hundred tokens


def wire(model: TinyGptOss) -> None:
    shape = model.shape
    basis = torch.linalg.qr(torch.randn(shape.hidden_size, shape.hidden_size)).Q
    seen, kept = basis[: shape.head_dim], basis[shape.head_dim : 2 * shape.head_dim]
    first, second = (model.layers[place].self_attn for place in (0, 1))
    assert isinstance(first, Attention)
    assert isinstance(second, Attention)
    with torch.no_grad():
        _previous_token(first, shape, seen, kept)
        _matching(second, shape, seen, kept)
    wire_copies(model)
    wire_meanings(model)
    wire_thirds(model)


def wire_meanings(model: TinyGptOss) -> None:
    """Makes the heads of one group also compare the meanings of words, by their strongest directions."""
    shape, attention = model.shape, model.layers[MATCHING].self_attn
    assert isinstance(attention, Attention)
    size, per_group = shape.head_dim, shape.num_attention_heads // shape.num_key_value_heads
    group, slow = shape.num_key_value_heads - 1, slow_places(size)
    with torch.no_grad():
        read = F.normalize(model.map_in[MEANING][: len(slow)]) * _ALIKE
        attention.k_proj.weight[[group * size + place for place in slow]] += read
        for head in range(group * per_group, (group + 1) * per_group):
            attention.q_proj.weight[[head * size + place for place in slow]] += read


def wire_thirds(model: TinyGptOss) -> None:
    """Makes heads of layer 1 find a word by its second piece and vote for its third: "ki" of Helsinki.

    Other circuits find a word by its first piece and bring its second. Training alone never found the step
    from there to the third.
    """
    shape, attention = model.shape, model.layers[1].self_attn
    assert isinstance(attention, Attention)
    if not thirds_have_room(shape):
        return
    size, slow = shape.head_dim, slow_places(shape.head_dim)
    per_group = shape.num_attention_heads // shape.num_key_value_heads
    group = shape.num_key_value_heads // 2
    at, of = group * size, group * per_group * size
    second, first, third = (model.map_in[code] for code in (SECOND, FIRST, THIRD))
    with torch.no_grad():
        keys = attention.k_proj.weight[at : at + size]
        queries = attention.q_proj.weight[of : of + per_group * size]
        keys.zero_()
        queries.zero_()
        keys[slow] = F.normalize(second[: len(slow)]) * _SAME_PIECE
        for head in range(per_group):
            queries[[head * size + place for place in slow]] = F.normalize(first[: len(slow)]) * _SAME_PIECE
            columns = slice(of + head * size, of + (head + 1) * size)
            attention.o_proj.weight[:, columns] = model.map_out[FIRST].T * (_VOTE / per_group)
        attention.v_proj.weight[at : at + size] = third / third.square().sum(1, keepdim=True)
        attention.sinks[group * per_group : (group + 1) * per_group] = _NO_WORD


def slow_places(size: int) -> list[int]:
    """The places in a head that hardly turn, in both halves."""
    half = size // 2
    first = int(half * _SLOW_FROM)
    return [*range(first, half), *range(half + first, size)]


def wire_copies(model: TinyGptOss) -> None:
    """Makes heads of the last two layers vote for what they attend to; each group reads another code."""
    for place in (-2, -1):
        attention = model.layers[place].self_attn
        assert isinstance(attention, Attention)
        with torch.no_grad():
            for group, code in enumerate((FIRST, SECOND, OWN)[: model.shape.num_key_value_heads]):
                _voting(model, attention, group, code)


def _voting(model: TinyGptOss, attention: Attention, group: int, code: slice) -> None:
    """Heads vote for the code that they read; a second piece alternately as a first and a second one."""
    shape = model.shape
    size, per_group = shape.head_dim, shape.num_attention_heads // shape.num_key_value_heads
    read = model.map_in[code]
    at = group * size
    attention.v_proj.weight[at : at + size] = read / read.square().sum(1, keepdim=True)
    attention.v_proj.bias[at : at + size] = 0
    for number in range(per_group):
        voted, strength = code, _VOTE / per_group
        if code == SECOND:
            voted, strength = (FIRST, SECOND)[number % 2], 2 * strength
        of = (group * per_group + number) * size
        attention.o_proj.weight[:, of : of + size] = model.map_out[voted].T * strength


def _previous_token(attention: Attention, shape: Shape, seen: Tensor, kept: Tensor) -> None:
    """Head 0 attends one token back by its biases alone and copies its `seen` part into `kept`."""
    size, half = shape.head_dim, shape.head_dim // 2
    cos, sin = rotation(shape, 2)
    concentration = cos[0]
    sharp = torch.zeros(half)
    sharp[: len(_SHARPNESS)] = torch.tensor(_SHARPNESS)
    attention.q_proj.weight[:size] *= 0.1
    attention.k_proj.weight[:size] *= 0.1
    attention.k_proj.bias[:size] = torch.cat((sharp, torch.zeros(half)))
    turned = (sharp * cos[1] / concentration, -sharp * sin[1] / concentration)
    attention.q_proj.bias[:size] = torch.cat(turned)
    attention.v_proj.weight[:size] = seen
    attention.v_proj.bias[:size] = 0
    attention.o_proj.weight[:, :size] = kept.T * 4.8


def _matching(attention: Attention, shape: Shape, seen: Tensor, kept: Tensor) -> None:
    """Every head compares the current token with the token before each place."""
    size, slow = shape.head_dim, slow_places(shape.head_dim)
    per_group = shape.num_attention_heads // shape.num_key_value_heads
    values = torch.linalg.qr(torch.randn(shape.hidden_size, shape.hidden_size)).Q
    for group in range(shape.num_key_value_heads):
        chosen = torch.randperm(size)[: len(slow)]
        at = group * size
        attention.k_proj.weight[at : at + size] *= 0.1
        attention.k_proj.weight[[at + place for place in slow]] = kept[chosen] * 2.5
        attention.v_proj.weight[at : at + size] = values[at : at + size]
        attention.v_proj.bias[at : at + size] = 0
        for head in range(group * per_group, (group + 1) * per_group):
            of = head * size
            attention.q_proj.weight[of : of + size] *= 0.1
            attention.q_proj.weight[[of + place for place in slow]] = seen[chosen] * 2.5
            attention.o_proj.weight[:, of : of + size] = values[at : at + size].T * (6.0 / per_group)
