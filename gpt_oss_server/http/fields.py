"""Building blocks of request bodies: strict types, shared vocabularies, and fields that are not served."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpt_oss_server.errors import InvalidJson, InvalidRequest, UnsupportedField
from gpt_oss_server.http.unserved import Accepted, NotServed
from gpt_oss_server.http.validation import sentence_for
from gpt_oss_server.json_values import has_more_values

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]


class Body(BaseModel):
    """A frozen model that accepts unknown fields: `serving/unknown_fields.py` treats those of a request."""

    not_served: ClassVar[NotServed] = {}  # the fields that are refused by name

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


def optional(description: str) -> Any:
    """A field that may be left out or null, with its text in the API reference."""
    return Field(None, description=description)


def required(description: str) -> Any:
    """A field that a request must have, with its text in the API reference."""
    return Field(description=description)


@cache
def inner_bodies(model: type[Body]) -> Mapping[str, type[Body]]:
    """The fields that hold an object of known fields, or a list of such."""
    return {
        field.alias or name: part
        for name, field in model.model_fields.items()
        for kind in (field.annotation, *get_args(field.annotation))
        for part in (kind, *get_args(kind))
        if isinstance(part, type) and issubclass(part, Body)
    }


B = TypeVar("B", bound=Body)
_OF_ENTRIES = frozenset({"input", "items", "messages", "requests"})
_OF_IDS = frozenset({"prompt", "tokens"})  # the size of the body bounds their number
_MOST_FIELDS = 200  # no API has as many
_MOST_ENTRIES = 50_000  # more messages fit no context
_MOST_VALUES = 50_000  # more than hundreds of tools have
_SERVED = (Accepted("", lambda value: True), "")


def read_body(body: object, model: type[B], example: str) -> B:
    """Returns the body as `model`; raises a 400 whose sentence names the fault."""
    if not isinstance(body, dict):
        raise InvalidJson(f"The request body must be a JSON object, e.g. {example}.")
    _check_counts(body, model)
    check_served(body, model.not_served)
    for name, part in inner_bodies(model).items():
        if isinstance(inner := body.get(name), dict):
            check_served(inner, part.not_served, f"{name}.")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        sentence, param = sentence_for(error)
        raise InvalidRequest(sentence, param=param) from None


def _check_counts(body: dict[str, Any], model: type[Body]) -> None:
    """Bounds the fields, and the values of each: to refuse a hundred thousand wrong tools takes seconds."""
    inner = [body.get(name) for name in inner_bodies(model)]
    if any(len(part) > _MOST_FIELDS for part in (body, *inner) if isinstance(part, dict)):
        raise InvalidRequest(f"A request may have {_MOST_FIELDS} fields at most. Send fewer.")
    for name, value in body.items():
        if name in _OF_ENTRIES:
            if isinstance(value, list) and len(value) > _MOST_ENTRIES:
                raise _too_many(name, f"{_MOST_ENTRIES:,} entries")
        elif name not in _OF_IDS and has_more_values(_MOST_VALUES, value):
            raise _too_many(name, f"{_MOST_VALUES:,} values")


def _too_many(name: str, most: str) -> InvalidRequest:
    return InvalidRequest(f"`{name[:99]}` may have {most} at most. Send fewer.", param=name)


def check_served(fields: Mapping[str, Any], not_served: NotServed, prefix: str = "") -> None:
    for name, value in fields.items():
        served, advice = not_served.get(name, _SERVED)
        if value is not None and not served(value):
            place = prefix + name
            which = " with this value" if served.words else ""
            raise UnsupportedField(f"This server does not serve `{place}`{which}. {advice}", param=place)


@cache
def documented(model: type[Body]) -> dict[str, Any]:
    """The body's schema for /docs. FastAPI does not parse the body, so its errors keep this server's form."""
    schema = {"schema": model.model_json_schema()}
    return {"requestBody": {"required": True, "content": {"application/json": schema}}}
