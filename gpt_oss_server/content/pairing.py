"""Sorts results into the order of their calls: Harmony has no ids, so only the order pairs them.

Takes messages or items as a client sent them, with the results of parallel calls in any order. Returns them
with their positions, and each run of consecutive results in the order of their calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

Placed = tuple[int, Any]


def in_order_of_calls(
    given: Sequence[Any],
    *,
    calls: Callable[[Any], Iterable[str]],
    answers: Callable[[Any], str | None],
    past: Iterable[str] = (),
) -> Iterator[Placed]:
    """`calls` returns the ids of the calls in an entry, `answers` the id of the call that an entry answers.

    `past` holds the ids of earlier calls in order. A result of an unknown call keeps its position.
    """
    number = count()
    order = {call: next(number) for call in past}
    results: list[tuple[int, Placed]] = []
    for place, entry in enumerate(given):
        answered = answers(entry)
        if answered in order:
            results.append((order[answered], (place, entry)))
            continue
        yield from _sorted(results)
        results = []
        yield place, entry
        for call in calls(entry):
            order[call] = next(number)  # a later round may use an id again
    yield from _sorted(results)


def _sorted(results: list[tuple[int, Placed]]) -> list[Placed]:
    return [placed for _, placed in sorted(results, key=lambda each: each[0])]
