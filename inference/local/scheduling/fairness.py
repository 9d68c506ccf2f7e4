"""Equal shares for the owners of sequences: whose starts next, and whose gives way.

Takes the running and the waiting sequences. Returns an order, or one of them. Priorities come before shares:
within one priority, the owner with the fewest running sequences is next, and of two sequences of one owner
the earlier. Pure Python; it must not know blocks or steps.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from inference.local.scheduling.sequence import Sequence

Standing = tuple[int, int, int]


def running_counts(running: Iterable[Sequence]) -> Counter[str]:
    """How many sequences of each owner run."""
    return Counter(sequence.owner for sequence in running)


def standing(sequence: Sequence, counts: Counter[str]) -> Standing:
    """The running sequence with the highest standing gives its memory back first."""
    return sequence.sampling.priority, counts[sequence.owner], sequence.number


def next_to_start(waiting: list[Sequence], counts: Counter[str]) -> Sequence:
    """Which of these starts next. They are in the order of ranks, so an owner's first is its earliest."""
    priority = waiting[0].sampling.priority
    firsts: dict[str, Sequence] = {}
    for sequence in waiting:
        if sequence.sampling.priority != priority:
            break
        firsts.setdefault(sequence.owner, sequence)
    return min(firsts.values(), key=lambda first: (counts[first.owner], first.number))


def may_give_way(waiting: Iterable[Sequence], counts: Counter[str]) -> bool:
    """Whether `that_gives_way` could name a sequence for any of these. Cheap, as a queue may be long."""
    most = max(counts.values(), default=0)
    return most > 1 and most > min(counts[owner] for owner in {sequence.owner for sequence in waiting}) + 1


def that_gives_way(running: Iterable[Sequence], to: Sequence, counts: Counter[str]) -> Sequence | None:
    """A running sequence whose owner has a larger share than `to`'s would have with it; None if none has.
    After they change places, the two shares are nearer to each other, so it does not happen in circles."""
    share = counts[to.owner] + 1
    candidates = [
        sequence
        for sequence in running
        if not sequence.in_flight
        and sequence.sampling.priority >= to.sampling.priority
        and counts[sequence.owner] > share
    ]
    return max(candidates, key=lambda sequence: standing(sequence, counts), default=None)


def in_turns(sequences: Iterable[Sequence]) -> Iterator[Sequence]:
    """These sequences so that owners alternate; an owner's own stay in order."""
    rounds: Counter[str] = Counter()
    numbered = []
    for at, sequence in enumerate(sequences):
        numbered.append((rounds[sequence.owner], at, sequence))
        rounds[sequence.owner] += 1
    return (sequence for _, _, sequence in sorted(numbered, key=lambda entry: entry[:2]))
