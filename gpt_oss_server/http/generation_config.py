"""`generation_config`: sampling fields in one JSON text, as the clients of `transformers serve` send them.

Takes a request's body. Returns the body with these values as fields of its own; a field that the request sets
itself wins. Raises a 400 that names the key. It must not know the meaning of a field.
"""

from collections.abc import Callable
from typing import Any

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.http.fields import Body
from gpt_oss_server.json_values import read_json_text

_PLACE = "generation_config"
_LIMIT = "max_new_tokens"
_FIELDS = {
    "min_new_tokens": "min_tokens",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "stop_strings": "stop",
    "num_return_sequences": "n",
}
_NEUTRAL: dict[str, Callable[[Any], bool]] = {
    "num_beams": lambda v: v == 1,
    "num_beam_groups": lambda v: v == 1,
    "diversity_penalty": lambda v: v == 0,
    "length_penalty": lambda v: v == 1,
    "no_repeat_ngram_size": lambda v: v == 0,
    "encoder_no_repeat_ngram_size": lambda v: v == 0,
    "encoder_repetition_penalty": lambda v: v == 1,
    "typical_p": lambda v: v == 1,
    "epsilon_cutoff": lambda v: v == 0,
    "eta_cutoff": lambda v: v == 0,
    "guidance_scale": lambda v: v == 1,
    "output_scores": lambda v: v is False,
    "output_logits": lambda v: v is False,
    "output_attentions": lambda v: v is False,
    "output_hidden_states": lambda v: v is False,
    "return_dict_in_generate": lambda v: True,
    "remove_invalid_values": lambda v: v is False,
    "renormalize_logits": lambda v: v is False,
    "early_stopping": lambda v: True,
    "min_length": lambda v: v == 0,
    "max_length": lambda v: v == 20,  # the library's own default
}
# They describe the checkpoint or how another library computes.
_WITHOUT_EFFECT = frozenset(
    {
        "_from_model_config",
        "bos_token_id",
        "cache_config",
        "cache_implementation",
        "compile_config",
        "disable_compile",
        "pad_token_id",
        "transformers_version",
        "use_cache",
    }
)


def with_generation_config(body: object, model: type[Body], limit: str) -> object:
    """The body with the config's values in it; `limit` is the API's field for the most output tokens."""
    if not isinstance(body, dict) or body.get(_PLACE) is None:
        return body
    config = _read(body[_PLACE])
    fields: dict[str, Any] = {}
    for key, value in config.items():
        if value is None or key in _WITHOUT_EFFECT:
            continue
        name = limit if key == _LIMIT else _FIELDS.get(key)
        if name is not None and name in model.model_fields:
            fields[name] = value
        elif key == "do_sample":
            fields |= {} if value else {"temperature": 0}
        elif key == "eos_token_id":
            fields["stop_token_ids"] = value if isinstance(value, list) else [value]
        elif key not in _NEUTRAL or not _NEUTRAL[key](value):
            place = f"{_PLACE}.{key}"
            raise UnsupportedField(
                f"This server does not serve `{place}` with this value. Leave it out.", param=place
            )
    if config.get("do_sample") is False:
        fields["temperature"] = 0  # whatever temperature the config has
    own = {name: value for name, value in body.items() if value is not None and name != _PLACE}
    if limit == "max_completion_tokens" and own.get("max_tokens") is not None:
        fields.pop(limit, None)
    return {**fields, **own}


def _read(config: Any) -> dict[str, Any]:
    if isinstance(config, str):
        try:
            config = read_json_text(config)
        except ValueError as error:
            raise InvalidRequest.at(_PLACE, f"is not JSON: {error}.") from None
    if not isinstance(config, dict):
        raise InvalidRequest.at(_PLACE, "must be a JSON object, or one as a text.")
    return config
