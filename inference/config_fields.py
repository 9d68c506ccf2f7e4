"""The fields of a parsed config.json, checked as they are read.

Takes a mapping; returns numbers and mappings, or raises a sentence that names the key. It must not know what
a key means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from inference.engine import CheckpointError

Value = TypeVar("Value")

_LARGEST = 2**53


class Fields:
    """A config's fields; remembers which were read."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        value = self._raw.get(key)
        return default if value is None else value

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._converted(key, default, int, "a whole number")
        if abs(value) > _LARGEST:
            raise CheckpointError(f"{key!r} is too large for any model.")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._converted(key, default, float, "a number")
        if not math.isfinite(value):
            raise CheckpointError(f"{key!r} must be a number, not {value}.")
        return value

    def mapping(self, key: str) -> Mapping[str, Any]:
        value = self.get(key, {})
        if not isinstance(value, Mapping):
            raise CheckpointError(f"{key!r} must be an object, not {value!r}.")
        return value

    def ignore(self, *keys: str) -> None:
        self._read.update(keys)

    def unread(self) -> list[str]:
        return sorted(set(self._raw) - self._read)

    def _converted(self, key: str, default: Value | None, kind: Callable[[Any], Value], what: str) -> Value:
        value = self.get(key, default)
        if value is None:
            raise CheckpointError(f"the key {key!r} is missing.")
        try:
            return kind(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{key!r} must be {what}, not {value!r}.") from error
