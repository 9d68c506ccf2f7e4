"""The arithmetic of a draft head: states to features, one decoder layer, and its guesses.

The pair at position p is the token there and the feature of the position before it. The layer's output at p
guesses token p + 1 and, in place of a feature, leads to the pair at p + 1. Rows are as the model's ops take
them; keys and values lie in paged memory under the same positions. It must not know sequences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from inference.drafting.config import DraftConfig
from inference.models.gpt_oss import GptOss
from inference.ops.device import ops_for
from inference.ops.halves import HalfRows, Matrix, linear
from inference.ops.pages import Pages
from inference.ops.rope import Rotations

FIRST_PAIR = 1  # no feature comes before position 0


@dataclass(frozen=True, slots=True)
class DraftWeights:
    fc: Matrix | None  # None: a feature is the model's last state
    fc_norm: Tensor | None  # over all states together
    state_norms: tuple[Tensor, ...]  # over each, or none
    token_norm: Tensor
    feature_norm: Tensor
    q: Matrix  # columns of the token, then of the feature
    q_bias: Tensor | None
    kv: Matrix  # rows k, v; the same columns
    kv_bias: Tensor | None
    out: Matrix
    out_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Matrix  # rows of the gate, then of the linear part
    down: Matrix
    norm: Tensor
    embedding: Tensor | None  # None: the model's
    head: Matrix | None  # None: the model's
    ids: Tensor | None  # the model's id of each of the head's rows; None: the same


class DraftHead:
    def __init__(self, config: DraftConfig, weights: DraftWeights, model: GptOss) -> None:
        self.config = config
        self._weights, self._model = weights, model
        self._ops = ops_for(model.device)
        self._rotations = Rotations(config.rope, config.head_dim, model.config.context_length, model.device)
        self._no_sinks = torch.full((config.heads,), -math.inf, device=model.device)

    @property
    def states(self) -> tuple[int, ...]:
        """After how many of the model's layers its states are needed."""
        return (self._model.config.layers,) if self.config.states is None else self.config.states

    def features(self, states: Sequence[Tensor]) -> Tensor:
        """T×F, from the model's states, T×H each."""
        weights, eps = self._weights, self.config.norm_eps
        if weights.fc is None:
            return self._model.normed(states[0])
        if weights.state_norms:
            norms = zip(states, weights.state_norms, strict=True)
            states = [self._ops.rms_norm(*pair, eps) for pair in norms]
        joined = torch.cat([*states], -1)
        if weights.fc_norm is not None:
            joined = self._ops.rms_norm(joined, weights.fc_norm, eps)
        return linear(joined, weights.fc)

    def layer(
        self, tokens: Tensor, features: Tensor, positions: Tensor, keys: Tensor, values: Tensor, pages: Pages
    ) -> Tensor:
        """Writes the keys and values of T pairs; returns their outputs."""
        config, weights = self.config, self._weights
        x, residual = self._joined(tokens, features)
        parts = (linear(x, weights.q, weights.q_bias), linear(x, weights.kv, weights.kv_bias))
        rotation = self._rotations.at(positions)
        query = self._ops.rotate_and_write(torch.cat(parts, -1), *rotation, keys, values, pages)
        attended = self._ops.paged_attention(query, keys, values, self._no_sinks, pages)
        residual = residual + linear(attended, weights.out, weights.out_bias)
        inner = linear(self._ops.rms_norm(residual, weights.mlp_norm, config.norm_eps), weights.gate_up)
        gate, straight = inner.chunk(2, -1)
        return residual + linear(functional.silu(gate) * straight, weights.down)

    def write(
        self, tokens: Tensor, features: Tensor, positions: Tensor, keys: Tensor, values: Tensor, pages: Pages
    ) -> None:
        """Only writes the keys and values of T pairs, to the slots of `pages`."""
        x, _ = self._joined(tokens, features)
        kv = linear(x, self._weights.kv, self._weights.kv_bias)
        self._ops.rotate_and_write(kv, *self._rotations.at(positions), keys, values, pages)

    def _joined(self, tokens: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer's products take of each pair, and its residual."""
        weights, eps = self._weights, self.config.norm_eps
        normed = self._ops.rms_norm(features, weights.feature_norm, eps)
        embedded = self._ops.rms_norm(self._embedded(tokens, features.dtype), weights.token_norm, eps)
        x = torch.cat((embedded, normed), -1)
        return x, normed if self.config.norm_before_residual else features

    def _embedded(self, tokens: Tensor, dtype: torch.dtype) -> Tensor:
        embedding = self._weights.embedding
        return self._model.embed(tokens) if embedding is None else embedding[tokens].to(dtype)

    def carried(self, outputs: Tensor) -> Tensor:
        """What the next pair has in place of a feature."""
        return self._normed(outputs) if self.config.carries_normed else outputs

    def guesses(self, outputs: Tensor) -> Tensor:
        """R: the likeliest next token of each output."""
        weights = self._weights
        if weights.head is None:
            return self._model.logits(outputs, weights.norm).argmax(-1)
        if isinstance(weights.head, HalfRows):
            logits = linear(self._normed(outputs), weights.head)
        else:
            logits = self._ops.head_logits(outputs, weights.norm, self.config.norm_eps, weights.head.t())
        best = logits.argmax(-1)
        return best if weights.ids is None else weights.ids[best]

    def _normed(self, outputs: Tensor) -> Tensor:
        normed: Tensor = self._ops.rms_norm(outputs, self._weights.norm, self.config.norm_eps)
        return normed
