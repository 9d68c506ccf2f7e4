"""The servers that run one model: which of them serves a generation, and which rest after a failure.

Those of a later rank serve while none of an earlier one can. Within a rank, a generation goes to the server
that read at least half of its prompt before, else to the idlest. A server that failed rests, longer each
time, and is probed until it answers; one that is full rests as it states.
"""

import hashlib
import logging
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from inference.engine import EngineBusy
from inference.remote.wire import Wire

_log = logging.getLogger(__name__)

_FIRST_REST, _LONGEST_REST = 0.5, 30.0  # seconds
_LONGEST_BUSY = 60.0  # seconds for which a server that reports that it is full is believed
_PART = 128  # tokens: how finely beginnings of prompts are remembered
_REMEMBERED = 65_536
_MORE = 8  # generations that a server with the prompt's beginning may have more than the idlest one


class Keeper(Protocol):
    """Starts the server of a replica again when it has ended."""

    is_starting: bool
    problem: str | None  # why it cannot be started
    moved: Callable[[str], None]  # to be called with its new address

    def close(self) -> None:
        """Ends the server."""


@dataclass(slots=True, eq=False)
class Replica:
    wire: Wire
    url: str
    keeper: Keeper | None = None
    rank: int = 0  # those of a higher one serve while no other can
    running: int = 0
    failures: int = 0  # since it last answered
    rests_until: float = 0.0  # on the monotonic clock
    checked: bool = True  # False: it was not there at the start, or came back and may have another model

    def rests(self, now: float) -> bool:
        return not self.checked or self.rests_until > now


@dataclass(slots=True)
class Replicas:
    all: Sequence[Replica]
    clock: Callable[[], float] = time.monotonic
    _seen: OrderedDict[bytes, Replica] = field(default_factory=OrderedDict)

    def choose(self, prompt: Sequence[int], tried: Collection[Replica] = ()) -> Replica:
        """Where a generation goes: not to those that were tried for it, unless there is no other."""
        if len(self.all) == 1:
            return self.all[0]
        now = self.clock()
        awake = [replica for replica in self.all if not replica.rests(now)]
        # If all rest, the one that wakes first is tried: a wrong guess must not refuse what could be served.
        checked = (replica for replica in self.all if replica.checked)
        resting = sorted(checked, key=lambda replica: replica.rests_until)[:1]
        candidates = [one for one in awake if one not in tried] or awake or resting or list(self.all)
        rank = min(one.rank for one in candidates)
        candidates = [one for one in candidates if one.rank == rank]
        idlest = min(candidates, key=lambda replica: replica.running)
        names = _beginnings(prompt)
        chosen = self._with_beginning(names, candidates) or idlest
        if chosen.running - idlest.running > _MORE:
            chosen = idlest
        for name in names:
            self._seen[name] = chosen
            self._seen.move_to_end(name)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return chosen

    def check_room(self) -> None:
        """Raises `EngineBusy` if every server has reported that it is full."""
        now = self.clock()
        waits = [one.rests_until - now for one in self.all if one.checked and not one.failures]
        if len(waits) == len(self.all) and min(waits) > 0:
            raise EngineBusy(None, min(waits), "Every engine of this model accepts no request now.")

    def answered(self, replica: Replica) -> None:
        replica.failures, replica.rests_until = 0, 0.0

    def failed(self, replica: Replica, why: Exception) -> None:
        if len(self.all) == 1:
            return
        rest = min(_FIRST_REST * 2**replica.failures, _LONGEST_REST)
        replica.failures += 1
        replica.rests_until = self.clock() + rest
        _log.warning("%s rests for %g s. %s", replica.url, rest, why)

    def busy(self, replica: Replica, why: EngineBusy) -> None:
        if len(self.all) > 1:
            replica.rests_until = self.clock() + min(why.retry_after, _LONGEST_BUSY)

    def _with_beginning(self, names: Sequence[bytes], candidates: Sequence[Replica]) -> Replica | None:
        """The server that saw at least half of the prompt last, as far as that is remembered."""
        for name in reversed(names[len(names) // 2 :]):
            replica = self._seen.get(name)
            if replica is not None and replica in candidates:
                return replica
        return None


def _beginnings(prompt: Sequence[int]) -> list[bytes]:
    """A name for each beginning of the prompt, from the shortest on."""
    digest, names = hashlib.blake2b(digest_size=16), []
    for end in range(_PART, len(prompt) + 1, _PART):
        digest.update(array("I", prompt[end - _PART : end]).tobytes())
        names.append(digest.copy().digest())
    return names
