"""Biases of single tokens. Takes `logit_bias`, or raises a 400 that names the entry."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.validation import json_type

_MOST = 100  # OpenAI's
_ID = re.compile(r"[0-9]{1,18}\Z")  # Python refuses to convert several thousand digits


def logit_bias(biases: Mapping[str, Any] | None, vocab_size: int) -> dict[int, float]:
    """By token id."""
    bias: dict[int, float] = {}
    for where, key, value in _entries(biases):
        if not _ID.match(key) or int(key) >= vocab_size:
            raise _fault(where, f"the name must be a token id below {vocab_size}")
        bias[int(key)] = value
    return bias


def check_bias(biases: Mapping[str, Any] | None) -> None:
    """Checks what needs no vocabulary, so that a request fails before any work."""
    for _ in _entries(biases):
        pass


def _entries(biases: Mapping[str, Any] | None) -> Iterator[tuple[str, str, float]]:
    """The place, the name and the bias of each entry."""
    for key, value in (biases or {}).items():
        where = f"logit_bias.{key:.60}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _fault(where, f"it must be a number, not {json_type(value)}")
        if abs(value) > _MOST:
            raise _fault(where, "it must be at most 100" if value > 0 else "it must be at least -100")
        yield where, key, float(value)


def _fault(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid value for `{where}`: {what}.", param=where)
