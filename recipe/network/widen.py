"""Makes a trained model larger without unlearning anything: it computes nearly the same, and has room.

New dimensions are unused at first. The embedding does not fill them and no layer reads them, but all layers
write a little there, from which they learn to use them. The heads of a new group look where those of an older
group look, and write only into the new dimensions.

A new layer shares the work of an older one: both compute the same, and each part's output is divided between
them. Since a layer changes the next one's input only a little, the result is nearly the same. A new layer
that wrote nothing at first would hardly learn, because it would get no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inference.tiny.shape import Shape

_SHARED = -3  # the layer, from the end, whose work a new one shares
# The first layer's share of the output, for alternating heads and experts. With halves both would learn the
# same.
_HEADS, _EXPERTS = (0.8, 0.2), (0.75, 0.25)
_FAINT = 0.3


class ShapeError(ValueError):
    """A model that cannot be widened to the requested shape."""


def widened(state: dict[str, Tensor], old: Shape, new: Shape, faint: float = _FAINT) -> dict[str, Tensor]:
    """The weights of a model of the shape `new` that computes the same as `state`.

    `faint`: the scale of outputs into new dimensions, relative to the old ones.
    """
    if new == old:
        return state
    _check(old, new)
    for count in range(old.num_hidden_layers, new.num_hidden_layers):
        state = _one_layer_more(state, _shared_of(count), old)
    made = {name: state[name] for name in ("learned_in", "learned_out")}
    made |= {name: _padded(state[name], 1, new.hidden_size) for name in ("map_in", "map_out")}
    made["norm"] = _norm(state["norm"], old, new)
    for place in range(new.num_hidden_layers):
        for name, tensor in _layer(_part(state, place), old, new, faint).items():
            made[f"layers.{place}.{name}"] = tensor
    return made


def _shared_of(count: int) -> int:
    """Which of `count` layers shares its work with the next new one."""
    return max(0, count + _SHARED)


def _part(state: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    """The weights of one layer, by their names in it."""
    begin = f"layers.{place}."
    return {name.removeprefix(begin): tensor for name, tensor in state.items() if name.startswith(begin)}


def _one_layer_more(state: dict[str, Tensor], at: int, shape: Shape) -> dict[str, Tensor]:
    """`state` with two layers in place of layer `at`, which share its work."""
    made = {name: tensor for name, tensor in state.items() if not name.startswith("layers.")}
    count = sum(name.endswith(".input_layernorm") for name in state)
    parts = [_part(state, place) for place in range(count)]
    parts[at : at + 1] = _shared(parts[at], shape)
    return made | {f"layers.{place}.{name}": part[name] for place, part in enumerate(parts) for name in part}


def _shared(layer: dict[str, Tensor], shape: Shape) -> list[dict[str, Tensor]]:
    """Two layers that together write the output of `layer`."""
    groups, experts = shape.num_key_value_heads, shape.num_local_experts
    of_heads = _alternating(_HEADS, groups).repeat_interleave(
        shape.num_attention_heads // groups * shape.head_dim
    )
    of_experts = _alternating(_EXPERTS, experts)
    shares = {
        "self_attn.o_proj.weight": of_heads,
        "self_attn.o_proj.bias": torch.tensor(0.5),
        "mlp.down_proj": of_experts[:, None, None],
        "mlp.down_proj_bias": of_experts[:, None],
    }
    first = {name: tensor * shares.get(name, torch.ones(())) for name, tensor in layer.items()}
    return [
        first,
        {name: tensor - first[name] if name in shares else tensor for name, tensor in layer.items()},
    ]


def _alternating(shares: Sequence[float], count: int) -> Tensor:
    return torch.tensor([shares[place % len(shares)] for place in range(count)])


def _check(old: Shape, new: Shape) -> None:
    same = ("head_dim", "intermediate_size", "num_local_experts", "learned_width")
    grown = ("hidden_size", "num_hidden_layers", "num_key_value_heads")
    per_group = [shape.num_attention_heads // shape.num_key_value_heads for shape in (old, new)]
    if (
        any(getattr(old, name) != getattr(new, name) for name in same)
        or any(getattr(old, name) > getattr(new, name) for name in grown)
        or per_group[0] != per_group[1]
    ):
        raise ShapeError(f"A model of {old} cannot be widened to {new}: it can grow in {', '.join(grown)}.")
    sources = list(range(old.num_hidden_layers))
    for count in range(old.num_hidden_layers, new.num_hidden_layers):
        sources.insert(_shared_of(count), sources[_shared_of(count)])
    sliding = tuple(place for place, source in enumerate(sources) if source in old.sliding_layers)
    if tuple(place for place in new.sliding_layers if place < len(sources)) != sliding:
        raise ShapeError(
            f"Layers would see more or fewer keys than before: sliding_layers must be {sliding}."
        )


def _layer(layer: dict[str, Tensor], old: Shape, new: Shape, faint: float) -> dict[str, Tensor]:
    """`layer` in the new shape."""

    def out(name: str, inputs: int) -> Tensor:
        """A weight that writes to the residual stream, along the last dimension but one."""
        weight = _padded(layer[name], layer[name].ndim - 1, inputs)
        drawn = torch.randn(*weight.shape[:-2], new.hidden_size - old.hidden_size, inputs)
        scale = float(layer[name].std()) * faint
        return torch.cat((weight, drawn * scale), dim=-2)

    made = {name: _norm(layer[name], old, new) for name in layer if name.endswith("layernorm")}
    made |= _grouped(layer, old, new)
    made["self_attn.o_proj.weight"] = out("self_attn.o_proj.weight", new.num_attention_heads * new.head_dim)
    made["self_attn.o_proj.bias"] = _padded(layer["self_attn.o_proj.bias"], 0, new.hidden_size)
    made["mlp.router.weight"] = _padded(layer["mlp.router.weight"], 1, new.hidden_size)
    made["mlp.router.bias"] = layer["mlp.router.bias"]
    made["mlp.gate_up_proj"] = _padded(layer["mlp.gate_up_proj"], 2, new.hidden_size)
    made["mlp.gate_up_proj_bias"] = layer["mlp.gate_up_proj_bias"]
    made["mlp.down_proj"] = out("mlp.down_proj", new.intermediate_size)
    made["mlp.down_proj_bias"] = _padded(layer["mlp.down_proj_bias"], 1, new.hidden_size)
    return made


def _grouped(layer: dict[str, Tensor], old: Shape, new: Shape) -> dict[str, Tensor]:
    """Queries, keys, values and sinks with new groups, which look like older ones but bring other values."""
    per_group = old.num_attention_heads // old.num_key_value_heads
    groups, known = range(new.num_key_value_heads), old.num_key_value_heads
    looks = [group % known for group in groups]
    brings = [(group - group // known) % known for group in groups]
    made = {}
    for name, of, count in (
        ("q_proj", looks, per_group * old.head_dim),
        ("k_proj", looks, old.head_dim),
        ("v_proj", brings, old.head_dim),
    ):
        weight, bias = (layer[f"self_attn.{name}.{part}"] for part in ("weight", "bias"))
        made[f"self_attn.{name}.weight"] = _padded(_chosen(weight, count, of), 1, new.hidden_size)
        made[f"self_attn.{name}.bias"] = _chosen(bias, count, of)
    made["self_attn.sinks"] = _chosen(layer["self_attn.sinks"], per_group, looks)
    return made


def _chosen(tensor: Tensor, count: int, groups: Sequence[int]) -> Tensor:
    """These `groups` of `tensor`, whose first dimension holds `count` for each."""
    parts = torch.split(tensor, count)
    return torch.cat([parts[group] for group in groups])


def _norm(weight: Tensor, old: Shape, new: Shape) -> Tensor:
    """Keeps the scale: while the new dimensions are empty, the mean square is smaller by their share."""
    weight = weight * math.sqrt(old.hidden_size / new.hidden_size)
    return torch.cat((weight, weight.abs().mean().expand(new.hidden_size - old.hidden_size)))


def _padded(tensor: Tensor, dimension: int, size: int) -> Tensor:
    """`tensor` padded with zeros up to `size` in this dimension."""
    shape = list(tensor.shape)
    shape[dimension] = size - shape[dimension]
    return torch.cat((tensor, tensor.new_zeros(shape)), dim=dimension)
