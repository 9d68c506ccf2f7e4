"""The building blocks of request bodies: strict types, shared vocabularies, and fields that are not served.

Takes decoded JSON. Returns pydantic models, or raises a 400 that names the invalid or unserved field. It must
not know the fields of a particular API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpt_oss_server.errors import InvalidJson, InvalidRequest, UnsupportedField
from gpt_oss_server.http.validation import sentence_for
from gpt_oss_server.json_values import has_more_values

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]


class Body(BaseModel):
    """A frozen model that accepts unknown fields."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=False)


def _not_bool(value: object) -> object:
    """Refuses booleans, which are numbers in Python but not in JSON."""
    if isinstance(value, bool):
        raise ValueError("expected a number, but got a boolean")
    return value


def _whole(value: object) -> object:
    """Accepts 1.0 as a whole number, as JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else _not_bool(value)


Number = Annotated[float, BeforeValidator(_not_bool), Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, BeforeValidator(_whole), Field(strict=True)]
Boolean = Annotated[bool, Field(strict=True)]

NotServed = Mapping[str, tuple[Callable[[Any], bool], str]]
"""field: (whether a value is served, the advice of the error)."""

_GRAMMAR = "Use a JSON schema (response_format, or text.format) or strict tools."
_SAMPLED = "Use temperature, top_p, top_k or min_p."
_NO_LORA = "This server runs one model without adapters."

SAMPLERS_NOT_SERVED: NotServed = {
    "repetition_penalty": (lambda v: v == 1, "Use presence_penalty or frequency_penalty."),
    "min_tokens": (lambda v: v == 0, "Leave it out."),
    "ignore_eos": (lambda v: v is False, "Leave it out."),
    "stop_token_ids": (lambda v: not v, "Leave it out; chat takes `stop` with strings."),
    "bad_words": (lambda v: not v, "Use logit_bias."),
    "allowed_token_ids": (lambda v: not v, "Use logit_bias."),
    "logits_processors": (lambda v: not v, "Use logit_bias."),
    "guided_json": (lambda v: False, _GRAMMAR),
    "guided_regex": (lambda v: False, _GRAMMAR),
    "guided_choice": (lambda v: False, _GRAMMAR),
    "guided_grammar": (lambda v: False, _GRAMMAR),
    "structured_outputs": (lambda v: False, _GRAMMAR),
    "json_schema": (lambda v: not v, _GRAMMAR),
    "grammar": (lambda v: not v, _GRAMMAR),
    "regex": (lambda v: not v, _GRAMMAR),
    "ebnf": (lambda v: not v, _GRAMMAR),
    "n_predict": (lambda v: v == -1, "Use max_tokens."),
    "repeat_penalty": (lambda v: v == 1, "Use presence_penalty or frequency_penalty."),
    "typical_p": (lambda v: v == 1, _SAMPLED),
    "mirostat": (lambda v: v == 0, _SAMPLED),
    "xtc_probability": (lambda v: v == 0, _SAMPLED),
    "dry_multiplier": (lambda v: v == 0, _SAMPLED),
    "dynatemp_range": (lambda v: v == 0, _SAMPLED),
    "top_n_sigma": (lambda v: v in (0, -1), _SAMPLED),
    "lora_request": (lambda v: False, _NO_LORA),
    "lora": (lambda v: False, _NO_LORA),
    "lora_path": (lambda v: False, _NO_LORA),
    "adapter_id": (lambda v: False, _NO_LORA),
}
"""Sampling fields of other servers that this server does not have in any API."""

B = TypeVar("B", bound=Body)
_OF_ENTRIES = frozenset({"input", "items", "messages"})
_OF_IDS = frozenset({"prompt", "tokens"})  # the size of the body bounds their number
_MOST_ENTRIES = 50_000  # more messages fit no context
_MOST_VALUES = 50_000  # more than hundreds of tools have


def read_body(body: object, model: type[B], not_served: NotServed, example: str) -> B:
    """Returns the body as `model`; raises a 400 whose sentence names the fault."""
    if not isinstance(body, dict):
        raise InvalidJson(f"The request body must be a JSON object, e.g. {example}.")
    _check_counts(body)
    for name, (served, advice) in not_served.items():
        value = body.get(name)
        if value is not None and not served(value):
            raise UnsupportedField(
                f"This server does not serve `{name}` with this value. {advice}", param=name
            )
    try:
        return model.model_validate(body)
    except ValidationError as error:
        sentence, param = sentence_for(error)
        raise InvalidRequest(sentence, param=param) from None


def _check_counts(body: dict[str, Any]) -> None:
    """Bounds the values of each field: the check of a hundred thousand wrong tools takes seconds."""
    for name, value in body.items():
        if name in _OF_ENTRIES:
            if isinstance(value, list) and len(value) > _MOST_ENTRIES:
                raise _too_many(name, f"{_MOST_ENTRIES:,} entries")
        elif name not in _OF_IDS and has_more_values(_MOST_VALUES, value):
            raise _too_many(name, f"{_MOST_VALUES:,} values")


def _too_many(name: str, most: str) -> InvalidRequest:
    return InvalidRequest(f"`{name[:99]}` may have {most} at most. Send fewer.", param=name)


def documented(model: type[Body]) -> dict[str, Any]:
    """The body's schema for /docs. FastAPI does not parse the body, so its errors keep this server's form."""
    schema = {"schema": model.model_json_schema()}
    return {"requestBody": {"required": True, "content": {"application/json": schema}}}
