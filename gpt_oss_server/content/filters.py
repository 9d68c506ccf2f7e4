"""Attributes of files, and conditions on them, as requests write them. A fault is a 400 that names it."""

from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.stores.vector_stores import Attributes, Filter

_MOST_ATTRIBUTES, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512
_MOST_CONDITIONS, _DEEPEST = 64, 5
_COMPARISONS = ("eq", "ne", "gt", "gte", "lt", "lte")
_OF_LISTS = ("in", "nin")


def read_attributes(value: Any, where: str) -> Attributes:
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MOST_ATTRIBUTES:
        raise InvalidRequest.at(where, f"must be an object with {_MOST_ATTRIBUTES} keys at most.")
    for key, each in value.items():
        if len(key) > _LONGEST_KEY or not _is_plain(each):
            raise InvalidRequest(
                f"`{where}.{key[:_LONGEST_KEY]}` must be a text of {_LONGEST_VALUE} characters at most, a "
                f"number or a boolean, and its key have {_LONGEST_KEY} characters at most.",
                param=where,
            )
    return value


def read_filter(value: Any, where: str) -> Filter | None:
    left = _MOST_CONDITIONS

    def read(value: Any, where: str, depth: int) -> Filter:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEEPEST:
            most = f"{_MOST_CONDITIONS} conditions, {_DEEPEST} levels deep"
            raise InvalidRequest.at(where, f": a filter may have {most} at most.")
        fields = value if isinstance(value, dict) else {}
        kind, parts = fields.get("type"), fields.get("filters")
        if kind in ("and", "or"):
            if not isinstance(parts, list) or not parts:
                raise InvalidRequest.at(f"{where}.filters", "must be a list of conditions.")
            read_parts = [read(part, f"{where}.filters[{i}]", depth + 1) for i, part in enumerate(parts)]
            return Filter(kind, parts=read_parts)
        wanted = fields.get("value")
        values: list[Any] = wanted if kind in _OF_LISTS and isinstance(wanted, list) else [wanted]
        if kind not in _COMPARISONS + _OF_LISTS or not isinstance(fields.get("key"), str):
            example = '{"type": "eq", "key": "year", "value": 2026}'
            raise InvalidRequest.at(where, f"must be a condition such as {example}.")
        is_ordered = kind not in ("eq", "ne", *_OF_LISTS)
        is_number = isinstance(wanted, int | float) and not isinstance(wanted, bool)
        if not values or not all(map(_is_plain, values)) or (is_ordered and not is_number):
            expected = (
                "a number" if is_ordered else "a text, a number, a boolean, or for `in` a list of these"
            )
            raise InvalidRequest.at(f"{where}.value", f"must be {expected}.")
        return Filter(kind, fields["key"], values)

    return None if value is None else read(value, where, 1)


def _is_plain(value: Any) -> bool:
    return len(value) <= _LONGEST_VALUE if isinstance(value, str) else isinstance(value, int | float)
