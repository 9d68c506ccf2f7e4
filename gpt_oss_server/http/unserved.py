"""Request fields of other servers: those that this server refuses by name, and those without effect.

Constants. A field that would change the answer and is not served is never ignored; a field that only chooses
how another engine computes or reports may be sent.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Accepted:
    """The values of a refused field that change nothing, so that clients may send them."""

    words: str  # for the API reference; "" if no value is accepted
    holds: Callable[[Any], bool]

    def __call__(self, value: Any) -> bool:
        return self.holds(value)


def only(*neutral: Any) -> Accepted:
    """These values alone. A boolean is no number, although it is one in Python."""
    return Accepted(
        " or ".join(f"`{json.dumps(each)}`" for each in neutral),
        lambda value: any(value == each and type(value) is not bool for each in neutral),
    )


NEVER = Accepted("", lambda value: False)
EMPTY = Accepted("an empty value or `false`", lambda value: not value)
FALSE = Accepted("`false`", lambda value: value is False)
TRUE = Accepted("`true`", lambda value: value is True)

NotServed = Mapping[str, tuple[Accepted, str]]
"""field: (the values that change nothing, the advice of the error)."""

_SAMPLED = "Use temperature, top_p, top_k or min_p."
_PENALISED = "Use repetition_penalty, presence_penalty or frequency_penalty."
_NO_BEAMS = "Use n to sample several answers."
_NO_LORA = "This server runs one model without adapters."
_BIAS = "Use logit_bias; -100 forbids a token."
_HARMONY = "Prompts are always in the Harmony format."
_TOP_LEVEL = "Send its values as fields of the request."


_KEEPS_THE_PROMPT = Accepted(
    "an object without `prompt_token_ids`",
    lambda value: not (isinstance(value, dict) and value.get("prompt_token_ids")),
)

_NO_PREWARM = Accepted(
    "an object without `prewarm`", lambda value: not (isinstance(value, dict) and value.get("prewarm"))
)

SAMPLERS_NOT_SERVED: NotServed = {
    "prompt_cache_options": (
        _NO_PREWARM,
        "Over a WebSocket of the Responses API, `generate: false` reads a prompt alone.",
    ),
    "allowed_token_ids": (EMPTY, _BIAS),
    "allowed_tokens": (EMPTY, _BIAS),
    "banned_tokens": (EMPTY, _BIAS),
    "banned_strings": (EMPTY, _BIAS),
    "bad_words": (EMPTY, _BIAS),
    "logits_processors": (EMPTY, _BIAS),
    "logits_processor": (EMPTY, _BIAS),
    "custom_logit_processor": (EMPTY, _BIAS),
    "ban_eos_token": (FALSE, "Use ignore_eos."),
    "min_new_tokens": (only(0), "Use min_tokens."),
    "max_new_tokens": (NEVER, "Use the API's own limit of output tokens."),
    "max_length": (NEVER, "Use the API's own limit of output tokens."),
    "n_predict": (only(-1), "Use the API's own limit of output tokens."),
    "do_sample": (TRUE, "For greedy sampling use temperature 0."),
    "num_beams": (only(1), _NO_BEAMS),
    "use_beam_search": (FALSE, _NO_BEAMS),
    "length_penalty": (only(1), _NO_BEAMS),
    "repeat_penalty": (only(1), _PENALISED),
    "rep_pen": (only(1), _PENALISED),
    "penalty_range": (only(0, -1), _PENALISED),
    "rep_pen_range": (only(0, -1), _PENALISED),
    "no_repeat_ngram_size": (only(0), _PENALISED),
    "dry_multiplier": (only(0), _PENALISED),
    "repetition_detection": (EMPTY, _PENALISED),
    "typical_p": (only(1), _SAMPLED),
    "typical": (only(1), _SAMPLED),
    "tfs": (only(1), _SAMPLED),
    "tfs_z": (only(1), _SAMPLED),
    "top_a": (only(0), _SAMPLED),
    "mirostat": (only(0), _SAMPLED),
    "mirostat_mode": (only(0), _SAMPLED),
    "smoothing_factor": (only(0), _SAMPLED),
    "skew": (only(0), _SAMPLED),
    "xtc_probability": (only(0), _SAMPLED),
    "dynatemp_range": (only(0), _SAMPLED),
    "epsilon_cutoff": (only(0), _SAMPLED),
    "eta_cutoff": (only(0), _SAMPLED),
    "adaptive_target": (only(-1), _SAMPLED),
    "top_n_sigma": (only(0, -1), _SAMPLED),
    "temperature_last": (FALSE, _SAMPLED),
    "cfg_scale": (only(1), "Describe in the prompt what to avoid."),
    "guidance_scale": (only(1), "Describe in the prompt what to avoid."),
    "negative_prompt": (EMPTY, "Describe in the prompt what to avoid."),
    "token_healing": (FALSE, "Leave it out."),
    "speculative_ngram": (FALSE, "The operator chooses, with --speculation."),
    "structural_tag": (NEVER, "Use strict tools, or a grammar."),
    "logprob_token_ids": (EMPTY, "Use top_logprobs, and logit_bias."),
    "n_probs": (only(0), "Use logprobs."),
    "kv_transfer_params": (_KEEPS_THE_PROMPT, "Send the token ids as `prompt` to /v1/completions."),
    "return_hidden_states": (FALSE, "Leave it out."),
    "lora_request": (NEVER, _NO_LORA),
    "lora": (EMPTY, _NO_LORA),
    "lora_path": (NEVER, _NO_LORA),
    "adapter_id": (NEVER, _NO_LORA),
    "options": (EMPTY, _TOP_LEVEL),
    "extra_body": (EMPTY, "The client should merge it into the request."),
}
"""Fields, most of them of sampling, that no API of this server has. The API's own tables add to them."""

TEMPLATES_NOT_SERVED: NotServed = {
    "chat_template": (NEVER, _HARMONY),
    "prompt_template": (NEVER, _HARMONY),
    "template": (NEVER, _HARMONY),
    "template_vars": (EMPTY, "Use chat_template_kwargs, in Chat Completions."),
}

WITHOUT_EFFECT = frozenset(
    {
        # OpenAI's and its gateways': they choose prices, caches and speed.
        "prompt_cache_key",
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
