"""The bytes of keys and values, and the least bytes and operations of a step, from the model's shape alone.

Divided by the machine's measured limits, those of a step give the fraction of the roofline.
"""

from dataclasses import dataclass

from inference.config import ModelConfig

MXFP4_BYTES = 17 / 32  # of one weight, its scale included


def expected_experts(config: ModelConfig, tokens: int) -> float:
    """The expected number of a layer's experts that some token uses, if all are equally likely."""
    missed = (1 - config.experts_per_token / config.experts) ** tokens
    return config.experts * (1 - missed)


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of a number."""

    plain: int
    weights: int  # of attention's weights and the head
    kv: int  # keys and values


def kept_bytes(config: ModelConfig, context: int, width: int) -> float:
    """The bytes of the keys and values of one sequence. `width`: bytes of a float."""
    keys = sum(min(context, config.window(layer) or context) for layer in range(config.layers))
    return keys * 2 * config.kv_heads * config.head_dim * width


def decode_bytes(config: ModelConfig, batch: int, context: int, widths: Widths) -> float:
    """The bytes that a step reads: needed weights once, all keys and values."""
    heads = 2 * (config.heads + config.kv_heads)
    router = config.experts * widths.plain
    attention = config.hidden * (config.head_dim * heads * widths.weights + router)
    expert = 3 * config.hidden * config.intermediate * MXFP4_BYTES
    return (
        config.layers * (attention + expected_experts(config, batch) * expert)
        + config.vocab_size * config.hidden * widths.weights
        + batch * kept_bytes(config, context, widths.kv)
    )


def prefill_flops(config: ModelConfig, tokens: int) -> float:
    """The operations of a whole prompt, with the head for its last token only; attention is causal."""
    heads = config.heads + 2 * config.kv_heads
    projections = config.hidden * config.head_dim * (heads + config.heads)
    experts = config.experts_per_token * 3 * config.hidden * config.intermediate
    per_token = 2 * config.layers * (projections + experts + config.hidden * config.experts)
    return tokens * per_token + _attention_flops(config, tokens) + 2 * config.vocab_size * config.hidden


def _attention_flops(config: ModelConfig, tokens: int) -> float:
    seen = 0.0
    for layer in range(config.layers):
        window = min(config.window(layer) or tokens, tokens)
        seen += window * (window + 1) / 2 + (tokens - window) * window
    return 4 * seen * config.heads * config.head_dim
