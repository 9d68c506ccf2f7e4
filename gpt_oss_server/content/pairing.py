"""Results in the order of their calls: Harmony has no ids, so which is whose is told by their order alone.

In: messages or items as a client sent them, where results that were made beside each other come as they were
finished. Out: the same with their places, each row of results in the order of the calls before it.
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
    """`calls`: the ids of the calls that one of them makes; `answers`: the id of the call whose result it is.

    `past`: the ids of earlier calls, in their order. A result of no known call stays where it is.
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
            order[made] = next(number)  # an id may come again, in a later round
    yield from _sorted(row)


def _sorted(row: list[tuple[int, Placed]]) -> list[Placed]:
    return [placed for _, placed in sorted(row, key=lambda each: each[0])]
