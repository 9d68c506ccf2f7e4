"""The head in training: the arithmetic of `inference/drafting/head.py` over whole conversations.

The pair at place p is the token there and the feature of the place before it. When the head guesses several
tokens, the pairs after the first have its own outputs in place of features. Training unrolls this: round j
computes every place as the jth pair of a chain that began j - 1 places earlier, after true features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from inference.config import RopeConfig
from inference.ops.reference import apply_rope, rope_tables

EPS = 1e-5
THETA = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    hidden: int
    states: tuple[int, ...]
    intermediate: int = 640
    heads: int = 5
    head_dim: int = 64


class HeadInTraining(nn.Module):
    def __init__(self, shape: HeadShape, embedding: Tensor, rows: Tensor, norm: Tensor) -> None:
        """`embedding`: the model's, which stays. `rows`, `norm`: of its head, from which this one starts."""
        super().__init__()
        self.shape, self.embedding = shape, embedding
        hidden, wide = shape.hidden, shape.heads * shape.head_dim
        states = len(shape.states) * hidden
        self.fc = nn.Linear(states, hidden, bias=False)
        self.q = nn.Linear(2 * hidden, wide, bias=False)
        self.k = nn.Linear(2 * hidden, wide, bias=False)
        self.v = nn.Linear(2 * hidden, wide, bias=False)
        self.out = nn.Linear(wide, hidden, bias=False)
        self.gate = nn.Linear(hidden, shape.intermediate, bias=False)
        self.up = nn.Linear(hidden, shape.intermediate, bias=False)
        self.down = nn.Linear(shape.intermediate, hidden, bias=False)
        self.head = nn.Linear(hidden, len(rows), bias=False)
        self.head.weight.data.copy_(rows)
        self.states_norm = nn.Parameter(torch.ones(states))
        self.token_norm, self.feature_norm, self.mlp_norm = (
            nn.Parameter(torch.ones(hidden)) for _ in range(3)
        )
        self.norm = nn.Parameter(norm.clone())

    def features(self, states: Tensor) -> Tensor:
        """T×F from T × the states side by side."""
        fused: Tensor = self.fc(_normed(states, self.states_norm))
        return fused

    def rounds(
        self, tokens: Tensor, features: Tensor, asked: Tensor, count: int
    ) -> list[tuple[Tensor, Tensor]]:
        """For each round, places and their logits; `asked` are the places, ascending, after place 0.

        A round has those places of the one before whose successors are asked for too.
        """
        shape, longest = self.shape, len(tokens)
        cos, sin = rope_tables(RopeConfig(theta=THETA, factor=1.0), shape.head_dim, longest)
        embedded = _normed(self.embedding[tokens].float(), self.token_norm)
        before = _normed(features[:-1], self.feature_norm)  # of the pairs from place 1 on
        x = torch.cat((embedded[1:], before), 1)
        keys = apply_rope(self._heads(self.k(x)), cos[1:], sin[1:])
        values = self._heads(self.v(x))
        own: list[tuple[Tensor, Tensor, Tensor]] = []  # places, keys, values of the later rounds
        found = []
        places, carried = asked, features[asked - 1]
        for turn in range(count):
            normed = _normed(carried, self.feature_norm)
            x = torch.cat((embedded[places], normed), 1)
            if turn:
                own.append(
                    (
                        places,
                        apply_rope(self._heads(self.k(x)), cos[places], sin[places]),
                        self._heads(self.v(x)),
                    )
                )
            query = apply_rope(self._heads(self.q(x)), cos[places], sin[places])
            attended = self._attended(query, places, turn, keys, values, own)
            residual = normed + self.out(attended)
            inner = _normed(residual, self.mlp_norm)
            outputs = residual + self.down(F.silu(self.gate(inner)) * self.up(inner))
            found.append((places, self.head(_normed(outputs, self.norm))))
            follows = torch.isin(places + 1, asked)
            places, carried = places[follows] + 1, outputs[follows]
        return found

    def _attended(
        self,
        query: Tensor,
        places: Tensor,
        turn: int,
        keys: Tensor,
        values: Tensor,
        own: list[tuple[Tensor, Tensor, Tensor]],
    ) -> Tensor:
        """True pairs up to where the chain began, then the chain's own ones."""
        scale = self.shape.head_dim**-0.5
        scores = [torch.einsum("qhd,khd->hqk", query, keys) * scale]
        last_true = (places - turn).unsqueeze(1)
        hidden = torch.arange(1, len(keys) + 1).unsqueeze(0) > last_true
        scores[0] = scores[0].masked_fill(hidden, -math.inf)
        chain = []
        for back, (theirs, their_keys, their_values) in enumerate(reversed(own)):
            at = torch.searchsorted(theirs, places - back)
            chain.append(their_values[at])
            scores.append(torch.einsum("qhd,qhd->hq", query, their_keys[at]).unsqueeze(2) * scale)
        weights = torch.softmax(torch.cat(scores, 2), 2)
        attended = torch.einsum("hqk,khd->qhd", weights[..., : len(keys)], values)
        for place, each in enumerate(chain, len(keys)):
            attended = attended + weights[..., place].t().unsqueeze(2) * each
        return attended.flatten(1)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.view(len(projected), self.shape.heads, self.shape.head_dim)


def _normed(x: Tensor, weight: Tensor) -> Tensor:
    return F.rms_norm(x, weight.shape, weight, EPS)
