"""`generation_config`: sampling fields in one JSON text, as clients of `transformers serve` send them."""

from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, check_served
from gpt_oss_server.http.unserved import FALSE, NEVER, SAMPLERS_NOT_SERVED, Accepted, NotServed, only
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
_ANY = Accepted("any value", lambda value: True)
_LEAVE_OUT = "Leave it out."
_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    **dict.fromkeys(
        ("num_beam_groups", "encoder_repetition_penalty", "guidance_scale"), (only(1), _LEAVE_OUT)
    ),
    **dict.fromkeys(("diversity_penalty", "encoder_no_repeat_ngram_size"), (only(0), _LEAVE_OUT)),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "min_length"), (only(0), _LEAVE_OUT)),
    **dict.fromkeys(("output_scores", "output_logits", "output_attentions"), (FALSE, _LEAVE_OUT)),
    **dict.fromkeys(("output_hidden_states", "remove_invalid_values"), (FALSE, _LEAVE_OUT)),
    "renormalize_logits": (FALSE, _LEAVE_OUT),
    **dict.fromkeys(("return_dict_in_generate", "early_stopping"), (_ANY, _LEAVE_OUT)),
    "max_length": (only(20), _LEAVE_OUT),  # the library's own default
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
    """The body with the config's values where it has none; `limit` is the API's field for the most tokens."""
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
        else:
            check_served({key: value}, {key: _NOT_SERVED.get(key, (NEVER, _LEAVE_OUT))}, f"{_PLACE}.")
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
