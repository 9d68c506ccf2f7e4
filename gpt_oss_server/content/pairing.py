"""Results in the order of their calls: Harmony has no ids, so only the order matches a result to its call.

In: messages or items as a client sent them; the results of parallel calls may come in any order. Out: the
same with their places, each row of results in the order of the calls before it.
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
    """`calls` returns the ids of the calls that a message makes, `answers` the id of the call it answers.

    `past` holds the ids of earlier calls, in their order. A result of an unknown call stays in its place.
    """
    number = count()
    order = {call: next(number) for call in past}
    row: list[tuple[int, Placed]] = []
    for place, one in enumerate(given):
        call = answers(one)
        if call in order:
            row.append((order[call], (place, one)))
            continue
        yield from _sorted(row)
        row = []
        yield place, one
        for made in calls(one):
            order[made] = next(number)  # a later round may use an id again
    yield from _sorted(row)


def _sorted(row: list[tuple[int, Placed]]) -> list[Placed]:
    return [placed for _, placed in sorted(row, key=lambda each: each[0])]
