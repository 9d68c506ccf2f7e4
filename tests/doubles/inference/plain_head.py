"""A draft head computed without paged memory, batches or steps: one sequence, all keys at once."""

import math
from typing import Any

import torch
from torch import Tensor

from inference.models.gpt_oss import GptOss, HiddenStates


class PlainHead:
    """Reads the tensors of a checkpoint by their published names."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor], model: GptOss) -> None:
        self.layer = config.get("transformer_layer_config", config)
        self.own = config | config.get("eagle_config", {})
        self.at = "layers.0." if "transformer_layer_config" in config else "midlayer."
        self.tensors = {name: tensor.float() for name, tensor in tensors.items()}
        self.model = model

    def guesses(self, tokens: list[int], count: int) -> list[int]:
        """The tokens that follow, each the likeliest after those before it."""
        given = torch.tensor(tokens)
        carried = self.features(given[:-1])
        pairs = [self.pair(int(token), row) for token, row in zip(given[1:], carried, strict=True)]
        found = []
        for _ in range(count):
            output = self.output(pairs)
            found.append(self.token(output))
            pairs.append(self.pair(found[-1], self.normed(output, "norm") if self.carries_normed else output))
        return found

    @property
    def carries_normed(self) -> bool:
        return bool(self.own.get("norm_output") or self.own.get("return_hidden_post_norm"))

    def features(self, tokens: Tensor) -> Tensor:
        config, cache = self.model.config, self.model.new_cache()
        ids = self.own.get("eagle_aux_hidden_state_layer_ids") or (2, config.layers // 2, config.layers - 3)
        wants_all = self.own.get("use_aux_hidden_state", True)
        hidden = HiddenStates(tuple(ids) if wants_all else (config.layers,))
        places = torch.arange(len(tokens))
        self.model.forward(tokens, places, cache.memory, cache.pages(len(tokens)), hidden)
        if not wants_all:
            return self.model.normed(hidden.found[0])
        states = hidden.found
        if self.own.get("fc_norm"):
            states = [self.normed(state, f"fc_norm.{at}") for at, state in enumerate(states)]
        joined = torch.cat(states, 1)
        if self.own.get("norm_before_fc"):
            joined = self.normed(joined, "input_norm")
        return joined @ self.tensors["fc.weight"].t()

    def pair(self, token: int, carried: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer reads, and its residual."""
        normed = self.normed(carried, f"{self.at}hidden_norm")
        embedded = self.model.embed(torch.tensor([token]))[0]
        if "embed_tokens.weight" in self.tensors:
            embedded = self.tensors["embed_tokens.weight"][token]
        x = torch.cat((self.normed(embedded, f"{self.at}input_layernorm"), normed))
        return x, normed if self.own.get("norm_before_residual") else carried

    def output(self, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Of the last pair; the first one is at position 1."""
        x, (last, residual) = torch.stack([each for each, _ in pairs]), pairs[-1]
        size, heads = self.layer["head_dim"], self.layer["num_attention_heads"]
        kv_heads = self.layer["num_key_value_heads"]
        query = self.projected("q", last).view(heads, size)
        keys, values = (self.projected(part, x).view(len(x), kv_heads, size) for part in "kv")
        first = max(0, len(x) - self.layer["sliding_window"]) if self.layer.get("layer_types") else 0
        (query,) = self.turned(query.unsqueeze(0), torch.tensor([len(x)]))
        keys = self.turned(keys[first:], torch.arange(first + 1, len(x) + 1))
        attended = []
        for head in range(heads):
            own = head * kv_heads // heads
            scores = keys[:, own] @ query[head] / math.sqrt(size)
            attended.append(torch.softmax(scores, 0) @ values[first:, own])
        residual = residual + self.tensors[f"{self.at}self_attn.o_proj.weight"] @ torch.cat(attended)
        inner = self.normed(residual, f"{self.at}post_attention_layernorm")
        gate, up = (self.tensors[f"{self.at}mlp.{part}_proj.weight"] @ inner for part in ("gate", "up"))
        return residual + self.tensors[f"{self.at}mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)

    def projected(self, part: str, x: Tensor) -> Tensor:
        found = x @ self.tensors[f"{self.at}self_attn.{part}_proj.weight"].t()
        bias = self.tensors.get(f"{self.at}self_attn.{part}_proj.bias")
        return found if bias is None else found + bias

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Pairs of numbers half a head apart, each row's turned by its position."""
        scaling = self.layer.get("rope_parameters") or self.layer.get("rope_scaling") or {}
        theta = scaling.get("rope_theta", self.layer.get("rope_theta"))
        half = x.shape[-1] // 2
        frequencies = [self.slowed(theta ** (-at / half), scaling) for at in range(half)]
        turns = torch.tensor(frequencies, dtype=torch.float64)
        angles = torch.outer(positions.double(), turns).unsqueeze(1)  # the same for all heads
        first, second = x.double().split(half, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).float()

    def slowed(self, frequency: float, scaling: dict[str, Any]) -> float:
        if scaling.get("rope_type", "default") == "default":
            return frequency
        wave = 2 * math.pi / frequency
        context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        if wave < context / scaling["high_freq_factor"]:
            return frequency
        if wave > context / scaling["low_freq_factor"]:
            return frequency / factor
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (context / wave - low) / (high - low)
        return (1 - smooth) * frequency / factor + smooth * frequency

    def normed(self, x: Tensor, name: str) -> Tensor:
        spread = x.square().mean(-1, keepdim=True) + self.layer["rms_norm_eps"]
        return x / spread.sqrt() * self.tensors[f"{name}.weight"]

    def token(self, output: Tensor) -> int:
        if "lm_head.weight" not in self.tensors:
            return int(self.model.logits(output.unsqueeze(0), self.tensors["norm.weight"]).argmax())
        best = int((self.tensors["lm_head.weight"] @ self.normed(output, "norm")).argmax())
        return best + int(self.tensors["d2t"][best]) if "d2t" in self.tensors else best
