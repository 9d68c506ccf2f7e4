"""Pairs calls with their results, and sorts results into the order of their calls: Harmony has no ids.

Takes messages or items as a client sent them, with the results of parallel calls in any order. Returns them
with their positions, and each run of consecutive results in the order of their calls; or the calls without a
result, and the results that a later one replaces.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

Placed = tuple[int, Any]


def in_order_of_calls(
    entries: Sequence[Any],
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
    for index, entry in enumerate(entries):
        answered = answers(entry)
        if answered in order:
            results.append((order[answered], (index, entry)))
            continue
        yield from _sorted(results)
        results = []
        yield index, entry
        for call in calls(entry):
            order[call] = next(number)  # a later round may use an id again
    yield from _sorted(results)


@dataclass(frozen=True, slots=True)
class Unpaired:
    replaced: frozenset[int]  # indices of results
    unanswered: Mapping[int, tuple[str, ...]]  # the last first: the first ids of its calls


def unpaired(
    entries: Sequence[Any],
    *,
    calls: Callable[[Any], Sequence[Sequence[str]]],
    answers: Callable[[Any], str | None],
) -> Unpaired:
    """`calls` returns, for each call in an entry, all ids by which a result may name it.

    Reads from the end: a result belongs to the call before it, and an id may return in a later round.
    """
    replaced, unanswered = set[int](), dict[int, tuple[str, ...]]()
    answered, ever = set[str](), set[str]()
    for index in range(len(entries) - 1, -1, -1):
        if (call := answers(entries[index])) is not None:
            if call in answered:
                replaced.add(index)
            answered.add(call)
            ever.add(call)
            continue
        called = calls(entries[index])
        for ids in called:
            answered.difference_update(ids)
        if left := tuple(ids[0] for ids in called if ever.isdisjoint(ids)):
            unanswered[index] = left
    return Unpaired(frozenset(replaced), unanswered)


def _sorted(results: list[tuple[int, Placed]]) -> list[Placed]:
    return [placed for _, placed in sorted(results, key=lambda result: result[0])]
