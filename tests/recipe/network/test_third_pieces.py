"""Words of three pieces, such as Helsinki: training has them, and heads vote for the third."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from inference.tiny.codes import fixed_part
from inference.tiny.shape import Shape
from recipe.network.model import Attention, TinyGptOss, rotate, rotation
from recipe.network.wiring import wire
from recipe.text.vocabulary import ids_by_bytes, token_bytes, token_table, without_space
from recipe.text.words import Words, is_held_out


def token(text: str) -> int:
    return ids_by_bytes()[text.encode()]


def fixed(texts: list[str]) -> torch.Tensor:
    return torch.from_numpy(fixed_part(token_table(), np.array([token(text) for text in texts], np.int32)))


@pytest.mark.training
def test_heads_initially_vote_for_the_third_piece_after_the_second() -> None:
    shape = Shape(num_hidden_layers=3)
    torch.manual_seed(0)
    model = TinyGptOss(shape, 0)
    wire(model)
    attention = model.layers[1].self_attn
    assert isinstance(attention, Attention)
    pieces = [token_bytes()[piece].decode() for piece in without_space(token(" Helsinki"))]
    assert len(pieces) == 3
    texts = [" mushrooms", " Helsinki", " hotel", " squash", *pieces[:2]]
    size, per_group = shape.head_dim, shape.num_attention_heads // shape.num_key_value_heads
    group = shape.num_key_value_heads // 2
    head = group * per_group
    at, of = slice(group * size, (group + 1) * size), slice(head * size, (head + 1) * size)
    cos, sin = rotation(shape, len(texts))
    with torch.inference_mode():
        x = fixed(texts) @ model.map_in
        x = x / x.square().mean(1, keepdim=True).sqrt()
        key, query = (
            rotate(attention.k_proj(x)[:, at], cos, sin),
            rotate(attention.q_proj(x)[:, of], cos, sin),
        )
        scores = (query @ key.T / size**0.5).masked_fill(torch.ones(6, 6).triu(1).bool(), float("-inf"))
        weights = torch.cat((scores, attention.sinks[head].expand(len(texts), 1)), 1).softmax(1)
        assert texts[int(weights[-1].argmax())] == " Helsinki"
        assert int(weights[2].argmax()) == len(texts)  # after " hotel" the sink: no vote
        vote = weights[-1, :-1] @ attention.v_proj(x)[:, at] @ attention.o_proj.weight[:, of].T
        some = [pieces[2], *pieces[:2], "lo", " the", "rooms", "ing", '"']
        assert some[int((fixed(some) @ model.map_out @ vote).argmax())] == pieces[2]


def test_training_draws_words_of_three_pieces_and_no_held_out_ones() -> None:
    words = Words(Random(0), False)
    drawn = [words.lower() for _ in range(1500)]
    known = [
        (word, found) for word in drawn if (found := ids_by_bytes().get(f" {word}".encode())) is not None
    ]
    in_three = [word for word, found in known if len(without_space(found)) == 3]
    assert len(in_three) > 60
    assert not any(map(is_held_out, in_three))
