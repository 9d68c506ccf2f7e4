"""Request fields of other servers: those that this server refuses by name, and those without effect.

Constants. A field that would change the answer and is not served is never ignored; a field that only chooses
how another engine computes or reports may be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

NotServed = Mapping[str, tuple[Callable[[Any], bool], str]]
"""field: (whether a value is served, the advice of the error)."""

_SAMPLED = "Use temperature, top_p, top_k or min_p."
_PENALISED = "Use repetition_penalty, presence_penalty or frequency_penalty."
_NO_LORA = "This server runs one model without adapters."
_BIAS = "Use logit_bias; -100 forbids a token."
_HARMONY = "Prompts are always in the Harmony format."
_TOP_LEVEL = "Send its values as fields of the request."


def _is(*neutral: Any) -> Callable[[Any], bool]:
    """Whether a value changes nothing. A boolean is no number, although Python says so."""
    return lambda value: any(value == each and type(value) is not bool for each in neutral)


def _empty(value: Any) -> bool:
    return value is False or not value


def _off(value: Any) -> bool:
    return value is False


def _never(value: Any) -> bool:
    return False


def _keeps_the_prompt(value: Any) -> bool:
    return not (isinstance(value, dict) and value.get("prompt_token_ids"))


SAMPLERS_NOT_SERVED: NotServed = {
    "allowed_token_ids": (_empty, _BIAS),
    "allowed_tokens": (_empty, _BIAS),
    "banned_tokens": (_empty, _BIAS),
    "logits_processors": (_empty, _BIAS),
    "logits_processor": (_empty, _BIAS),
    "custom_logit_processor": (_empty, _BIAS),
    "ban_eos_token": (_off, "Use ignore_eos."),
    "min_new_tokens": (_is(0), "Use min_tokens."),
    "max_new_tokens": (_never, "Use the API's own limit of output tokens."),
    "max_length": (_never, "Use the API's own limit of output tokens."),
    "n_predict": (_is(-1), "Use the API's own limit of output tokens."),
    "do_sample": (lambda v: v is True, "For greedy sampling use temperature 0."),
    "num_beams": (_is(1), "Use use_beam_search with best_of, in Chat Completions or plain completions."),
    "repeat_penalty": (_is(1), _PENALISED),
    "rep_pen": (_is(1), _PENALISED),
    "penalty_range": (_is(0, -1), _PENALISED),
    "rep_pen_range": (_is(0, -1), _PENALISED),
    "no_repeat_ngram_size": (_is(0), _PENALISED),
    "dry_multiplier": (_is(0), _PENALISED),
    "repetition_detection": (_empty, _PENALISED),
    "typical_p": (_is(1), _SAMPLED),
    "typical": (_is(1), _SAMPLED),
    "tfs": (_is(1), _SAMPLED),
    "tfs_z": (_is(1), _SAMPLED),
    "top_a": (_is(0), _SAMPLED),
    "mirostat": (_is(0), _SAMPLED),
    "mirostat_mode": (_is(0), _SAMPLED),
    "smoothing_factor": (_is(0), _SAMPLED),
    "skew": (_is(0), _SAMPLED),
    "xtc_probability": (_is(0), _SAMPLED),
    "dynatemp_range": (_is(0), _SAMPLED),
    "epsilon_cutoff": (_is(0), _SAMPLED),
    "eta_cutoff": (_is(0), _SAMPLED),
    "adaptive_target": (_is(-1), _SAMPLED),
    "top_n_sigma": (_is(0, -1), _SAMPLED),
    "temperature_last": (_off, _SAMPLED),
    "cfg_scale": (_is(1), "Describe in the prompt what to avoid."),
    "guidance_scale": (_is(1), "Describe in the prompt what to avoid."),
    "negative_prompt": (_empty, "Describe in the prompt what to avoid."),
    "token_healing": (_off, "Leave it out."),
    "speculative_ngram": (_off, "The operator chooses, with --speculation."),
    "structural_tag": (_never, "Use strict tools, or a grammar."),
    "logprob_token_ids": (_empty, "Use top_logprobs, and logit_bias."),
    "n_probs": (_is(0), "Use logprobs."),
    "kv_transfer_params": (_keeps_the_prompt, "Send the token ids as `prompt` to /v1/completions."),
    "return_hidden_states": (_off, "Leave it out."),
    "lora_request": (_never, _NO_LORA),
    "lora": (_empty, _NO_LORA),
    "lora_path": (_never, _NO_LORA),
    "adapter_id": (_never, _NO_LORA),
    "options": (_empty, _TOP_LEVEL),
    "extra_body": (_empty, "The client should merge it into the request."),
}
"""Sampling fields of other servers that no API of this server has. The API's own tables add to them."""

TEMPLATES_NOT_SERVED: NotServed = {
    "chat_template": (_never, _HARMONY),
    "prompt_template": (_never, _HARMONY),
    "template": (_never, _HARMONY),
    "template_vars": (_empty, "Use chat_template_kwargs, in Chat Completions."),
}

WITHOUT_EFFECT = frozenset(
    {
        # OpenAI's and its gateways': they choose prices, caches and speed.
        "prediction",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "provider",
        "usage",
        # They choose how another engine keeps, routes, compiles or logs a request.
        "add_special_tokens",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "cache_prompt",
        "data_parallel_rank",
        "guided_decoding_backend",
        "id_slot",
        "keep_alive",
        "media_io_kwargs",
        "mm_processor_kwargs",
        "n_keep",
        "no_stop_trim",
        "parse_tool_calls",
        "reasoning_format",
        "request_id",
        "return_progress",
        "rid",
        "samplers",
        "separate_reasoning",
        "slot_id",
        "spaces_between_special_tokens",
        "stream_reasoning",
        "timings_per_token",
        # They qualify a sampler that is refused unless it is off.
        "dry_allowed_length",
        "dry_base",
        "dry_penalty_last_n",
        "dry_range",
        "dry_sequence_breakers",
        "dynatemp_exponent",
        "early_stopping",
        "mirostat_eta",
        "mirostat_tau",
        "repeat_last_n",
        "xtc_threshold",
    }
)
"""Fields that change no answer of this server, so that no client is warned of them."""
