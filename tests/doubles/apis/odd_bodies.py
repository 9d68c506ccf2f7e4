"""Bodies with odd values at any place, and the check of their answers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterator
from typing import Any

from gpt_oss_server.errors import ApiError

EMPTY: tuple[Any, ...] = (None, 0, "", [], {})
ODD: tuple[Any, ...] = (*EMPTY, True, -1, 1.5, "x", [None], [{}], {"a": 1}, "\ud800", {"type": []})


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*place, key))


def with_odd(body: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    copy = inner = json.loads(json.dumps(body))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    return copy


async def answer_or_sentence(request: Awaitable[Any]) -> ApiError | None:
    """Returns the error, or None for an answer; a defect raises."""
    try:
        answer = await request
    except ApiError as error:
        return error
    return None if answer else ApiError("an empty answer")
