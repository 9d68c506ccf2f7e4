"""Reads the arguments of a call, as the model wrote them, as a JSON object."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tools.outputs import encodable


class BadArguments(ValueError):
    """The arguments are not a JSON object. The message is for the model."""


def read_arguments(text: str) -> dict[str, Any]:
    """The arguments; an empty text and null mean none. Every text in the result can be encoded."""
    if not text.strip():
        return {}
    try:
        value = json.loads(encodable(text), parse_constant=_refuse)
    except RecursionError as error:
        raise BadArguments("The arguments are nested too deeply.") from error
    except ValueError as error:
        where = f" ({error})" if isinstance(error, json.JSONDecodeError) else ""
        raise BadArguments(f"The arguments are not valid JSON{where}. Send one JSON object.") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArguments("The arguments must be one JSON object.")
    # An escaped lone surrogate is valid JSON but not valid UTF-8.
    cleaned: dict[str, Any] = json.loads(encodable(json.dumps(value, ensure_ascii=False)))
    return cleaned


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
