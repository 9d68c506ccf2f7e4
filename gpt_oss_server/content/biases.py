"""Biases of single tokens. Takes `logit_bias` in any of its shapes, or raises a 400 that names the entry."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http.validation import json_type

NEVER = -100.0  # OpenAI's lowest bias: in practice the token is never sampled
_LONGEST_WORD = 100  # characters
_ID = re.compile(r"-?[0-9]{1,18}\Z")  # Python refuses to convert several thousand digits


def logit_bias(
    biases: Mapping[str, Any] | Sequence[Any] | None, encoding: Encoding, vocab_size: int
) -> dict[int, float]:
    """Reads OpenAI's object of ids, and llama.cpp's pairs; both may have a text in the place of an id."""
    bias: dict[int, float] = {}
    for where, of, value in _entries(biases):
        for token in _tokens(of, where, encoding, vocab_size):
            bias[token] = _bias(value, where)
    return bias


def check_bias(biases: Mapping[str, Any] | Sequence[Any] | None) -> None:
    """Checks what needs no vocabulary, so that a request fails before any work."""
    for where, _, value in _entries(biases):
        _bias(value, where)


def _entries(biases: Mapping[str, Any] | Sequence[Any] | None) -> Iterator[tuple[str, int | str, Any]]:
    """The place, the id or text, and the bias of each entry."""
    if isinstance(biases, Mapping):
        for key, value in biases.items():
            yield f"logit_bias.{key:.60}", int(key) if _ID.match(key) else key, value
        return
    for at, pair in enumerate(biases or ()):
        where = f"logit_bias[{at}]"
        if not isinstance(pair, list) or len(pair) != len(("of", "bias")) or type(pair[0]) not in (int, str):
            raise _fault(where, "it must be a pair of a token id or a text and a number")
        yield where, pair[0], pair[1]


def _bias(value: Any, where: str) -> float:
    if value is False:
        return NEVER
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _fault(where, f"it must be a number, or false, not {json_type(value)}")
    if abs(value) > -NEVER:
        raise _fault(where, "it must be at most 100" if value > 0 else "it must be at least -100")
    return float(value)


def _tokens(of: int | str, where: str, encoding: Encoding, vocab_size: int) -> Sequence[int]:
    if isinstance(of, str):
        if not 0 < len(of) <= _LONGEST_WORD:
            raise _fault(where, f"a text must have 1 to {_LONGEST_WORD} characters")
        return encoding.encode(of)
    if not 0 <= of < vocab_size:
        raise _fault(where, f"token ids must be below {vocab_size}")
    return (of,)


def _fault(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"Invalid value for `{where}`: {what}.", param=where)
