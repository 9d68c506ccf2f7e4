"""Restricts values to those that JSON can serialise again, and their number: finite, whole, of limited depth.

Takes JSON text, or it and the value parsed from it. Returns the value with lone surrogates replaced, or
raises. It must not know whether a client or the model wrote the text.
"""

import json
import re
from math import isfinite
from typing import Any
from urllib.parse import unquote

_LONE = re.compile("[\ud800-\udfff]")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
MAX_DEPTH = 100  # serialisers and schema readers recurse; real requests are far shallower
MAX_VALUES = 500_000  # a million take the parser, which no other thread interrupts, a quarter of a second
_PIECE = 2**18  # characters


def read_json_text(text: str) -> Any:
    """The value of a text. Raises ValueError with a sentence that explains what is wrong."""
    too_deep = f"it is nested more than {MAX_DEPTH} levels deep"
    try:
        value = json.loads(text, parse_constant=no_constant, parse_float=finite)
    except RecursionError:
        raise ValueError(too_deep) from None
    if is_too_deep(text, value):
        raise ValueError(too_deep)
    return whole_characters(text, value)


def resolve(root: Any, reference: str) -> Any:
    """The target of the JSON pointer `#/a/b`, or None."""
    target = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, list) and name.isascii() and name.isdigit() and int(name) < len(target):
            target = target[int(name)]
        elif isinstance(target, dict):
            target = target.get(name)
        else:
            return None
    return target


def has_too_many_values(text: bytes) -> bool:
    """Whether this JSON has more than `MAX_VALUES` values, by the commas, colons and brackets in it."""
    if _separators(text) <= MAX_VALUES:
        return False
    plain = text.replace(rb"\\", b"").replace(rb"\"", b"")  # now each quotation mark begins or ends a string
    if plain.count(b'"') > 2 * MAX_VALUES:
        return True
    return _separators(b"".join(plain.split(b'"')[::2])) > MAX_VALUES


def _separators(text: bytes) -> int:
    return sum(text.count(mark) for mark in (b",", b":", b"[", b"{"))


def is_too_deep(text: str, value: object) -> bool:
    """Whether recursive readers of `value`, the parsed `text`, could exceed the recursion limit."""
    return text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH)


def whole_characters(text: str, value: object) -> object:
    """The value of this JSON, with lone surrogates replaced."""
    return without_lone_surrogates(value) if _SURROGATE.search(text) else value


def without_lone_surrogates(value: object) -> object:
    """Replaces each lone surrogate by U+FFFD: JSON can escape one, but UTF-8 cannot encode it."""
    text = json.dumps(value, ensure_ascii=False)
    # In pieces, between which other threads run.
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE))
    return json.loads("".join(_LONE.sub("\ufffd", piece) for piece in pieces))


def dicts_of(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none where the value is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def finite(number: str) -> float:
    value = float(number)
    if not isfinite(value):  # JSON cannot serialise it
        raise ValueError(f"{number[:40]} is out of the range of numbers.")
    return value


def no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON value.")


def is_larger(limit: int, *values: object) -> bool:
    """Whether the values are longer than `limit` as JSON, more or less. Counting stops at the limit."""
    count, waiting = 0, list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            count += len(value) + 2
        elif isinstance(value, (dict, list)):
            count += 2 * len(value)
        else:
            count += 4
        if count > limit:  # so that a long list is not even copied
            return True
        if isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def has_more_values(limit: int, value: object) -> bool:
    """Whether there are more than `limit` values in this value. Counting stops at the limit."""
    count, waiting = 0, [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, (dict, list)):
            count += len(inner)
            if count > limit:
                return True
            waiting += inner.values() if isinstance(inner, dict) else inner
    return False


def _deeper_than(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True
