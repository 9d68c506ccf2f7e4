"""The shape of a gpt-oss model, read from either kind of config.json: original/'s or Hugging Face's.

It ignores unknown keys: checkpoints gain keys all the time, and none has yet changed the arithmetic.
It must not know tensors or weight files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from inference.engine import CheckpointError
from inference.foreign import foreign_config

Value = TypeVar("Value")

# The ids of the Harmony format: ordinary tokens, then special ones up to 200012, then unused ids.
VOCABULARY = 201_088
LAST_SPECIAL_TOKEN = 200_012
_LARGEST = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary embedding: plain with factor 1; above 1 YaRN or, `by_turns`, Llama 3's."""

    theta: float = 150_000.0
    factor: float = 32.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    original_context: int = 4096
    truncate: bool = False
    concentration: float | None = None  # None: YaRN's own 0.1·ln(factor) + 1
    by_turns: bool = False  # only draft heads have it

    def __post_init__(self) -> None:
        is_growing = self.factor >= 1 and self.beta_fast > self.beta_slow
        if not (is_growing and self.theta > 0 and self.original_context > 0):
            raise CheckpointError("the rope does not fit: its base, a factor or its context is wrong.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    layers: int
    hidden: int
    intermediate: int
    vocab_size: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int
    experts_per_token: int
    sliding_window: int
    sliding_layers: tuple[bool, ...]
    context_length: int
    rope: RopeConfig
    swiglu_limit: float = 7.0
    swiglu_alpha: float = 1.702
    norm_eps: float = 1e-5
    attention_bias: bool = True
    tied_head: bool = False

    def window(self, layer: int) -> int | None:
        """The number of keys that a query of this layer sees, its own included; None for all."""
        return self.sliding_window if self.sliding_layers[layer] else None

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The kinds of layers: each window once, in the order of its first layer."""
        return tuple(dict.fromkeys(self.window(layer) for layer in range(self.layers)))

    def kind(self, layer: int) -> int:
        """The layer's place among `windows`."""
        return self.windows.index(self.window(layer))

    def with_context(self, context: int | None, model: object) -> ModelConfig:
        """With the context that a user requests of `model`; None is its own, which is the longest."""
        if context is None:
            return self
        if context > self.context_length:
            raise CheckpointError(
                f"The requested context is {context} tokens; {model} supports {self.context_length}."
            )
        return replace(self, context_length=context)

    def __post_init__(self) -> None:
        checks = {
            "num_attention_heads must be a multiple of num_key_value_heads": self.heads % self.kv_heads == 0,
            "head_dim must be even": self.head_dim % 2 == 0,
            "experts per token must not exceed the experts": 0 < self.experts_per_token <= self.experts,
            "there must be one layer type per layer": len(self.sliding_layers) == self.layers,
        }
        for rule, holds in checks.items():
            if not holds:
                raise CheckpointError(f"config.json does not fit: {rule}.")


def read_config(path: Path) -> ModelConfig:
    return read_object(path, parse_config)


def read_object(path: Path, parse: Callable[[Mapping[str, Any]], Value]) -> Value:
    """What `parse` makes of the JSON object that a file holds. Raises `CheckpointError`."""
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing: it defines the shape of the weights.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(parsed, Mapping):
        raise CheckpointError(f"{path} must hold a JSON object.")
    try:
        return parse(parsed)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads either kind. Hugging Face's repeats names of the original, so its own names identify it."""
    if problem := foreign_config(raw):
        raise CheckpointError(f"the model {problem}")
    fields = Fields(raw)
    _check_known(fields)
    is_hugging_face = any(key in raw for key in ("model_type", "architectures", "num_local_experts"))
    config = _from_hugging_face(fields) if is_hugging_face else _from_original(fields)
    check_vocabulary(config.vocab_size)
    return config


def check_vocabulary(size: int) -> None:
    if size != VOCABULARY:
        raise CheckpointError(
            f"'vocab_size' is {size}; gpt-oss models have the {VOCABULARY} ids of the Harmony format, whose "
            f"special tokens reach up to {LAST_SPECIAL_TOKEN}. This is another kind of model."
        )


def _check_known(fields: Fields) -> None:
    """What would change the arithmetic."""
    quantization = fields.mapping("quantization_config").get("quant_method")
    for key, value, known in (
        ("hidden_act", fields.get("hidden_act"), "silu"),
        ("quantization_config.quant_method", quantization, "mxfp4"),
    ):
        if value not in (None, known):
            raise CheckpointError(f"{key!r} is {value!r}; only {known!r} is supported.")


def _from_original(fields: Fields) -> ModelConfig:
    rope = RopeConfig(
        theta=fields.number("rope_theta", 150_000.0),
        factor=fields.number("rope_scaling_factor", 32.0),
        beta_slow=fields.number("rope_ntk_alpha", 1.0),
        beta_fast=fields.number("rope_ntk_beta", 32.0),
        original_context=fields.whole("initial_context_length", 4096),
    )
    layers = fields.whole("num_hidden_layers")
    return ModelConfig(
        experts=fields.whole("num_experts"),
        experts_per_token=fields.whole("experts_per_token", 4),
        sliding_layers=alternating(layers),
        **_common(fields, rope),
    )


def _from_hugging_face(fields: Fields) -> ModelConfig:
    layers = fields.whole("num_hidden_layers")
    rope = RopeConfig(theta=fields.number("rope_theta", 150_000.0))
    if fields.mapping("rope_scaling") or fields.mapping("rope_parameters"):
        initial = fields.whole("initial_context_length", 4096)
        rope = read_rope(fields, theta=150_000.0, kinds=("yarn",), factor=32.0, context=initial)
    return ModelConfig(
        experts=fields.whole("num_local_experts", fields.get("num_experts")),
        experts_per_token=fields.whole("num_experts_per_tok", fields.whole("experts_per_token", 4)),
        sliding_layers=_layer_types(fields, layers),
        swiglu_alpha=fields.number("swiglu_alpha", 1.702),
        attention_bias=bool(fields.get("attention_bias", True)),
        tied_head=bool(fields.get("tie_word_embeddings", False)),
        **_common(fields, rope),
    )


def _common(fields: Fields, rope: RopeConfig) -> dict[str, Any]:
    """The fields that have the same names in both kinds."""
    return {
        **layer_sizes(fields),
        "layers": fields.whole("num_hidden_layers"),
        "context_length": fields.whole("max_position_embeddings", int(rope.original_context * rope.factor)),
        "rope": rope,
        "sliding_window": fields.whole("sliding_window", 128),
        "swiglu_limit": fields.number("swiglu_limit", 7.0),
    }


def layer_sizes(fields: Fields) -> dict[str, Any]:
    """Of a layer of a model or of a draft head."""
    heads, hidden = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    return {
        "hidden": hidden,
        "heads": heads,
        "intermediate": fields.whole("intermediate_size"),
        "vocab_size": fields.whole("vocab_size"),
        "kv_heads": fields.whole("num_key_value_heads", heads),
        "head_dim": fields.whole("head_dim", hidden // heads),
        "norm_eps": fields.number("rms_norm_eps", 1e-5),
    }


def read_rope(
    fields: Fields, *, theta: float, kinds: Sequence[str], factor: float | None, context: int | None
) -> RopeConfig:
    """Older files have `rope_scaling` and `rope_theta`, newer ones `rope_parameters`. `kinds` are
    those of scaling; the others are the values of what the file omits, None where it must not."""
    scaling = Fields({**fields.mapping("rope_parameters"), **fields.mapping("rope_scaling")})
    theta = scaling.number("rope_theta", fields.number("rope_theta", theta))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return RopeConfig(theta=theta, factor=1.0)
    if kind not in kinds:
        raise CheckpointError(f"the rope type is {kind!r}; known are {', '.join(('default', *kinds))}.")
    by_turns = kind == "llama3"
    fast, slow = ("high_freq_factor", "low_freq_factor") if by_turns else ("beta_fast", "beta_slow")
    share = scaling.get("attention_factor")
    return RopeConfig(
        theta=theta,
        factor=scaling.number("factor", factor),
        beta_fast=scaling.number(fast, 4.0 if by_turns else 32.0),
        beta_slow=scaling.number(slow, 1.0),
        original_context=scaling.whole("original_max_position_embeddings", context),
        truncate=bool(scaling.get("truncate", True)),
        concentration=None if share is None else scaling.number("attention_factor"),
        by_turns=by_turns,
    )


def _layer_types(fields: Fields, layers: int) -> tuple[bool, ...]:
    types = fields.get("layer_types")
    if types is None:
        return alternating(layers)
    known = {"sliding_attention": True, "full_attention": False}
    if not isinstance(types, list):
        raise CheckpointError(f"'layer_types' must be a list, not {types!r}.")
    for kind in types:
        if not isinstance(kind, str) or kind not in known:
            raise CheckpointError(f"layer_types has {kind!r}; known types are {', '.join(known)}.")
    return tuple(known[kind] for kind in types)


def alternating(layers: int) -> tuple[bool, ...]:
    return tuple(layer % 2 == 0 for layer in range(layers))


class Fields:
    """A config's fields, checked as they are read."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def get(self, key: str, default: Any = None) -> Any:
        value = self._raw.get(key)
        return default if value is None else value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._converted(key, default, int, "a whole number")
        if not 1 <= value <= _LARGEST:
            raise CheckpointError(f"{key!r} must be at least 1 and at most {_LARGEST}, not {value}.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._converted(key, default, float, "a number")
        if not math.isfinite(value):
            raise CheckpointError(f"{key!r} must be a number, not {value}.")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            raise CheckpointError(f"{key!r} must be an object, not {value!r}.")
        return value

    def _converted(self, key: str, default: Value | None, kind: Callable[[Any], Value], what: str) -> Value:
        value = self.get(key, default)
        if value is None:
            raise CheckpointError(f"the key {key!r} is missing.")
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{key!r} must be {what}, not {value!r}.") from error


# The shapes that can run without a checkpoint, for measuring.
_20B = ModelConfig(
    layers=24,
    hidden=2880,
    intermediate=2880,
    vocab_size=201_088,
    heads=64,
    kv_heads=8,
    head_dim=64,
    experts=32,
    experts_per_token=4,
    sliding_window=128,
    sliding_layers=alternating(24),
    context_length=131_072,
    rope=RopeConfig(),
)
_TINY: dict[str, Any] = {"hidden": 128, "intermediate": 128, "vocab_size": 2_048, "context_length": 8_192}
_TINY |= {"heads": 8, "kv_heads": 2, "head_dim": 16, "experts": 4, "experts_per_token": 2}
SHAPES = {
    "20b": _20B,
    "120b": replace(_20B, layers=36, experts=128, sliding_layers=alternating(36)),
    "tiny": replace(_20B, layers=2, sliding_layers=alternating(2), sliding_window=64, **_TINY),
}
