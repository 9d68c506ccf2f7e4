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
_LENGTH = "Use the API's own limit of output tokens."


def _without(key: str) -> Accepted:
    return Accepted(f"an object without `{key}`", lambda v: not (isinstance(v, dict) and v.get(key)))


SAMPLERS_NOT_SERVED: NotServed = {
    "prompt_cache_options": (
        _without("prewarm"),
        "Over a WebSocket of the Responses API, `generate: false` reads a prompt alone.",
    ),
    **dict.fromkeys(("allowed_token_ids", "bad_words", "logits_processors"), (EMPTY, _BIAS)),
    **dict.fromkeys(("banned_strings", "banned_tokens", "custom_logit_processor"), (EMPTY, _BIAS)),
    "min_new_tokens": (only(0), "Use min_tokens."),
    **dict.fromkeys(("max_new_tokens", "max_length"), (NEVER, _LENGTH)),
    "n_predict": (only(-1), _LENGTH),
    "do_sample": (TRUE, "For greedy sampling use temperature 0."),
    **dict.fromkeys(("num_beams", "length_penalty"), (only(1), _NO_BEAMS)),
    "best_of": (only(1), _NO_BEAMS),
    "use_beam_search": (FALSE, _NO_BEAMS),
    "repeat_penalty": (only(1), _PENALISED),
    **dict.fromkeys(("no_repeat_ngram_size", "dry_multiplier"), (only(0), _PENALISED)),
    "repetition_detection": (EMPTY, _PENALISED),
    "typical_p": (only(1), _SAMPLED),
    **dict.fromkeys(("mirostat", "xtc_probability", "dynatemp_range"), (only(0), _SAMPLED)),
    "adaptive_target": (only(-1), _SAMPLED),
    "top_n_sigma": (only(0, -1), _SAMPLED),
    "structural_tag": (NEVER, "Use strict tools, or a grammar."),
    "logprob_token_ids": (EMPTY, "Use top_logprobs, and logit_bias."),
    "n_probs": (only(0), "Use logprobs."),
    "return_tokens_as_token_ids": (FALSE, "Use return_token_ids."),
    "kv_transfer_params": (
        _without("prompt_token_ids"),
        "Send the token ids as `prompt` to /v1/completions.",
    ),
    "return_hidden_states": (FALSE, "Leave it out."),
    **dict.fromkeys(("lora_request", "lora_path"), (NEVER, _NO_LORA)),
    "lora": (EMPTY, _NO_LORA),
    "options": (EMPTY, "Send its values as fields of the request."),
    "extra_body": (EMPTY, "The client should merge it into the request."),
}
"""Fields, most of them of sampling, that no API of this server has. The API's own tables add to them."""

TEMPLATES_NOT_SERVED: NotServed = {"chat_template": (NEVER, _HARMONY), "template": (NEVER, _HARMONY)}

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
        "cache_prompt",
        "guided_decoding_backend",
        "id_slot",
        "keep_alive",
        "n_keep",
        "reasoning_format",
        "return_progress",
        "separate_reasoning",
        "timings_per_token",
        # They qualify a sampler that is refused unless it is off.
        "dry_allowed_length",
        "dry_base",
        "dry_penalty_last_n",
        "dry_sequence_breakers",
        "dynatemp_exponent",
        "mirostat_eta",
        "mirostat_tau",
        "repeat_last_n",
        "xtc_threshold",
    }
)
"""Fields that change no answer of this server, so that no client is warned of them."""
