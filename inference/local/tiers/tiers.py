"""The thread that copies blocks between the engine's memory, memory of the machine and a folder.

Takes blocks to keep and blocks to fill, from the engine's thread, which it never makes wait. Blocks to fill
come first: a prompt waits for them. It must not know sequences.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import numpy

from inference.local.scheduling.lower import Fetch, Place
from inference.local.tiers.packs import PINNED, Key, Packs

AT_ONCE = 64  # blocks of one copy, and of one pack
MOST_QUEUED = 4096  # jobs that wait, mostly packs to write; the oldest are given up
REFRESH = 30.0  # seconds between two looks at what other servers wrote
BEFORE_END = 30.0  # seconds that an engine's end waits for blocks to be written

logger = logging.getLogger(__name__)


class BlockMemory(Protocol):
    """The engine's memory of keys and values."""

    @property
    def block_bytes(self) -> Sequence[int]: ...

    def contents(self, kind: int, blocks: Sequence[int]) -> Any: ...

    def fill(self, kind: int, blocks: Sequence[int], contents: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, as measured at the start."""

    token: float  # to compute a token of a prompt
    disk_byte: float  # to restore a byte from the folder
    memory_byte: float


@dataclass(slots=True)
class Counts:
    """Since the start."""

    restored_from_memory: int = 0  # tokens
    restored_from_disk: int = 0
    cache_read_bytes: int = 0
    cache_written_bytes: int = 0
    cache_saved_seconds: float = 0.0


class Tiers:
    """Implements `inference.local.scheduling.lower.LowerTiers`."""

    def __init__(
        self, memory: BlockMemory, packs: Packs | None, most_memory: int, costs: Costs, tokens: Sequence[int]
    ) -> None:
        """`tokens`: for each kind of layer, those that a restored block of it counts for."""
        self._memory, self._packs, self._costs, self._tokens = memory, packs, costs, tokens
        self._most, self._held = most_memory, 0
        self._blocks: OrderedDict[Key, bytes] = OrderedDict()  # in memory of the machine
        self._changed = threading.Condition()
        self._fetches: deque[Fetch] = deque()
        self._jobs: deque[Callable[[], None]] = deque(maxlen=MOST_QUEUED)  # what no prompt waits for
        self._arrived: deque[Fetch] = deque()
        self._filling = threading.Lock()  # while blocks are written to
        self._closing, self._at_work, self._refreshed = False, False, time.monotonic()
        self.is_current: Callable[[Place], bool] = lambda place: True
        self.wake: Callable[[], None] = lambda: None  # when a fetch has ended
        self.counts = Counts()
        self._thread = threading.Thread(target=self._run, name="cache", daemon=True)

    # The engine's thread ------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def holds(self, kind: int, name: bytes) -> bool:
        return (kind, name) in self._blocks or (self._packs is not None and self._packs.holds((kind, name)))

    def is_worth(self, tokens: int, missing: Sequence[Key]) -> bool:
        sizes, costs = self._memory.block_bytes, self._costs
        in_memory = sum(sizes[key[0]] for key in missing if key in self._blocks)
        on_disk = sum(sizes[key[0]] for key in missing) - in_memory
        return in_memory * costs.memory_byte + on_disk * costs.disk_byte < tokens * costs.token

    def fetch(self, fetch: Fetch) -> None:
        self._add(self._fetches, fetch)

    def arrived(self) -> list[Fetch]:
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def cancel(self, fetch: Fetch) -> None:
        with self._filling:
            fetch.cancelled = True

    def keep(self, salt: str, places: Sequence[Place]) -> None:
        for at in range(0, len(places), AT_ONCE):
            self._add(self._jobs, partial(self._store, salt, places[at : at + AT_ONCE]))

    # Any thread ---------------------------------------------------------------------------------------

    def pin(self, names: Sequence[bytes]) -> None:
        """Once what waits is written, the packs of these blocks are deleted after all others."""
        if self._packs is not None:
            keys = [(kind, name) for name in names for kind in range(len(self._tokens))]
            self._add(self._jobs, partial(self._packs.touch, keys, PINNED))

    def _add(self, queue: deque[Any], item: object) -> None:
        with self._changed:
            queue.append(item)
            self._changed.notify()

    def measures(self) -> dict[str, float]:
        return {
            **asdict(self.counts),
            "cache_memory_bytes": self._held,
            "cache_disk_bytes": 0 if self._packs is None else self._packs.bytes,
            "cache_queued": len(self._jobs) + self._at_work,
        }

    def close(self) -> None:
        """Writes what waits, for some seconds at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(BEFORE_END)
        self._jobs.clear()  # it may still copy, but no further pack

    # Its own thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing or self.has_work, REFRESH)
                if self._closing and not self.has_work:
                    return
            try:
                self.work()
            except Exception:
                # Any exception: the engine computes what it does not find here.
                logger.exception("A copy of cached blocks failed; they are computed again.")

    @property
    def has_work(self) -> bool:
        return bool(self._fetches or self._jobs)

    def work(self) -> bool:
        """Does one copy, or looks at what other servers wrote; returns whether there was a copy to do."""
        if self._packs is not None and time.monotonic() > self._refreshed + REFRESH:
            self._packs.refresh()
            self._refreshed = time.monotonic()
        with self._changed:
            fetch = self._fetches.popleft() if self._fetches else None
            job = self._jobs.popleft() if self._jobs and fetch is None else None
            self._at_work = job is not None
        if fetch is not None:
            try:
                self._restore(fetch)
            finally:
                self._arrived.append(fetch)
                self.wake()
        elif job is not None:
            job()
            self._at_work = False
        return fetch is not None or job is not None

    def _restore(self, fetch: Fetch) -> None:
        began, tokens = time.monotonic(), 0
        for kind, places in _groups(fetch.wanted):
            rows = numpy.empty((len(places), self._memory.block_bytes[kind]), dtype=numpy.uint8)
            sources = [self._read((kind, place.name), rows[at]) for at, place in enumerate(places)]
            good = [at for at, source in enumerate(sources) if source]
            filled = [places[at] for at in good]
            with self._filling:
                if fetch.cancelled or not good:
                    continue
                self._memory.fill(kind, [place.block for place in filled], rows[good])
            fetch.filled += filled
            from_memory = sources.count("memory") * self._tokens[kind]
            self.counts.restored_from_memory += from_memory
            self.counts.restored_from_disk += len(good) * self._tokens[kind] - from_memory
            self.counts.cache_read_bytes += len(good) * rows.shape[1]
            tokens += len(good) * self._tokens[kind]
        if self._packs is not None:
            self._packs.touch((place.kind, place.name) for place in fetch.filled)
        saved = tokens * self._costs.token - (time.monotonic() - began)
        self.counts.cache_saved_seconds += max(0.0, saved)

    def _read(self, key: Key, row: Any) -> str:
        """Fills the row; returns the tier, or nothing."""
        content = self._blocks.get(key)
        if content is not None:
            self._blocks.move_to_end(key)
            row[:] = numpy.frombuffer(content, dtype=numpy.uint8)
            return "memory"
        return "disk" if self._packs is not None and self._packs.read(key, memoryview(row)) else ""

    def _store(self, salt: str, offered: Sequence[Place]) -> None:
        found: list[tuple[Key, Any]] = []
        for kind, places in _groups([place for place in offered if not self.holds(place.kind, place.name)]):
            rows = self._memory.contents(kind, [place.block for place in places])
            # After the copy: a block that was taken meanwhile may have changed below it.
            pairs = zip(places, rows, strict=True)
            found += [((kind, place.name), row) for place, row in pairs if self.is_current(place)]
        for key, row in found if self._most else ():
            self._blocks[key] = row.tobytes()
            self._held += row.nbytes
        while self._held > self._most:
            self._held -= len(self._blocks.popitem(last=False)[1])
        if self._packs is not None:
            self.counts.cache_written_bytes += self._packs.write(salt, found)


def _groups(places: Sequence[Place]) -> Iterator[tuple[int, list[Place]]]:
    """Of one kind each, and not more than are copied at once."""
    for kind, group in groupby(sorted(places, key=attrgetter("kind")), attrgetter("kind")):
        own = list(group)
        for at in range(0, len(own), AT_ONCE):
            yield kind, own[at : at + AT_ONCE]
