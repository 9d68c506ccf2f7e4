"""The shape of a draft head, read from the config.json of either published layout.

That is the `speculators` package's (`speculators_model_type`), whose decoder layer has an object of its own,
or a Llama config with `LlamaForCausalLMEagle3`, as NVIDIA publishes it. It must not know tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.config import Fields, RopeConfig, layer_sizes, read_object, read_rope
from inference.engine import CheckpointError

LLAMA, SPECULATORS = "LlamaForCausalLMEagle3", "eagle3"
# What would change the arithmetic, with the only value that is implemented.
ONLY_KNOWN = {"num_hidden_layers": 1, "hidden_act": "silu", "mlp_bias": False, "parallel_draft_step": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftConfig:
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int  # of the model
    draft_vocab: int | None  # ids that the head can guess; None: all of the model's, by the model's own head
    target_hidden: int
    # After how many of the model's layers its states are taken; None: those before its head, and no `fc`.
    states: tuple[int, ...] | None
    rope: RopeConfig
    norm_eps: float
    window: int | None
    attention_bias: bool
    norm_before_residual: bool  # the layer's residual is the normalised state
    norm_before_fc: bool  # one norm over all states together
    norm_each_state: bool  # one for each
    carries_normed: bool  # the next guess starts from the normalised output

    def __post_init__(self) -> None:
        sizes = {
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab_size,
            "draft_vocab_size": 1 if self.draft_vocab is None else self.draft_vocab,
            "sliding_window": 1 if self.window is None else self.window,
        }
        for name, size in sizes.items():
            if size < 1:
                raise CheckpointError(f"{name} must be above 0, but is {size}.")
        if self.heads % self.kv_heads or self.head_dim % 2:
            raise CheckpointError(
                "num_attention_heads must be a multiple of num_key_value_heads, and head_dim must be even."
            )
        if self.states is not None and list(self.states) != sorted(
            {layer for layer in self.states if layer >= 0}
        ):
            raise CheckpointError(
                f"eagle_aux_hidden_state_layer_ids must be ascending layers, not {list(self.states)}."
            )
        if self.norm_before_fc and self.norm_each_state:
            raise CheckpointError("norm_before_fc and fc_norm exclude each other.")


def read_draft_config(path: Path, layers: int) -> DraftConfig:
    """`layers`: of the model, from which a file that names no states takes the usual ones."""
    return read_object(path, lambda raw: parse_draft_config(raw, layers))


def parse_draft_config(raw: Mapping[str, Any], layers: int) -> DraftConfig:
    top = Fields(raw)
    if raw.get("speculators_model_type") == SPECULATORS:
        layer = Fields(top.mapping("transformer_layer_config"))
    elif isinstance(built := raw.get("architectures"), list) and LLAMA in built:
        layer = top
    else:
        raise CheckpointError(
            f"this is no EAGLE-3 draft head: it has neither a 'speculators_model_type' of {SPECULATORS!r} "
            f"nor {LLAMA!r} among its 'architectures'. Name the folder of a head such as "
            "RedHatAI/gpt-oss-20b-speculator.eagle3 or nvidia/gpt-oss-120b-Eagle3-long-context."
        )
    own = Fields({**raw, **top.mapping("eagle_config")})  # NVIDIA's inner object comes first
    for key, known in ONLY_KNOWN.items():
        stated = (own if key == "parallel_draft_step" else layer).get(key, known)
        if stated != known:
            raise CheckpointError(f"{key!r} is {stated!r}; only {known!r} is supported.")
    has_vocab = own.get("draft_vocab_size") is not None
    slides = isinstance(kinds := layer.get("layer_types"), list) and "sliding_attention" in kinds
    return DraftConfig(
        **layer_sizes(layer),
        draft_vocab=own.whole("draft_vocab_size") if has_vocab else None,
        target_hidden=own.whole("target_hidden_size", layer.whole("hidden_size")),
        states=_states(own, layers),
        rope=read_rope(layer, theta=10_000.0, kinds=("llama3", "yarn"), factor=None, context=None),
        window=layer.whole("sliding_window") if slides else None,
        attention_bias=bool(layer.get("attention_bias", False)),
        norm_before_residual=bool(own.get("norm_before_residual", False)),
        norm_before_fc=bool(own.get("norm_before_fc", False)),
        norm_each_state=bool(own.get("fc_norm", False)),
        carries_normed=bool(own.get("norm_output", False) or own.get("return_hidden_post_norm", False)),
    )


def _states(own: Fields, layers: int) -> tuple[int, ...] | None:
    """The usual ones are after a few layers, after half of them, and a few before the end."""
    if not own.get("use_aux_hidden_state", True):
        return None
    stated = own.get("eagle_aux_hidden_state_layer_ids")
    if not stated:
        return (2, layers // 2, layers - 3)
    if not isinstance(stated, list) or not all(type(layer) is int for layer in stated):
        raise CheckpointError(f"eagle_aux_hidden_state_layer_ids must be a list of layers, not {stated!r}.")
    return tuple(stated)
