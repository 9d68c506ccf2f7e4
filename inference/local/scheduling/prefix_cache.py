"""Which blocks hold which part of which sequence, and which of them a later prompt can start from.

Takes sequences that start, grow and end; fills their tables of blocks. The hash of all tokens up to a full
block's end and of the request's salt names the block, so that a prompt finds what an earlier one computed.
Layers with a window hold only the window. Of the blocks that they release, the windows at marked positions (a
prompt's end, and the point where prompts diverge) are reused last, so that a conversation whose turns lose
their analysis still finds its prefix. Full blocks of prompts and of ended sequences are offered to lower
tiers, if there are any, and are fetched from there for a prompt that waits. Pure Python; it plans no steps.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from inference.local.scheduling.block_pool import BlockPool, IntegrityError
from inference.local.scheduling.lower import Fetch, LowerTiers, Place
from inference.local.scheduling.sequence import Holding, Sequence

# Tokens between two windows that are offered to lower tiers wherever a prompt of them may diverge later.
STRIDE = 1024


@dataclass(frozen=True, slots=True)
class Hit:
    """How much of a sequence is already computed, in full blocks."""

    blocks: int  # usable on all layers
    furthest: int  # present on the layers without a window: here an earlier prompt diverged
    promised: bool  # another sequence is computing the next block


class PrefixCache:
    def __init__(
        self,
        windows: Iterable[int | None],
        counts: Iterable[int],
        block_size: int,
        lower: LowerTiers | None = None,
    ) -> None:
        """`windows` and `counts`: for each kind of layer; the counts include block 0."""
        self.block_size, self._lower = block_size, lower
        self._windows, self._counts = tuple(windows), tuple(counts)
        self._promises: dict[bytes, Sequence | Fetch] = {}
        self._fetches: list[Fetch] = []
        self.reset()

    def reset(self) -> None:
        """Drops everything. Call it only while no sequence holds a block."""
        for fetch in self._fetches:
            assert self._lower is not None
            self._lower.cancel(fetch)
        self._fetches.clear()
        self._pools = [BlockPool(count) for count in self._counts]
        self._kinds = list(zip(self._pools, self._windows, strict=True))
        self._promises.clear()

    @property
    def used(self) -> int:
        return sum(pool.used for pool in self._pools)

    @property
    def usage(self) -> float:
        """The share of blocks in use, from 0 to 1, of the kind of layer that has the fewest left."""
        return max((pool.used / max(1, pool.count - 1) for pool in self._pools), default=0.0)

    # A sequence starts --------------------------------------------------------------------------------

    def look_up(self, sequence: Sequence) -> Hit:
        """What is computed of a waiting sequence's tokens, without the last, which always runs."""
        if sequence.scores is not None:
            return Hit(0, 0, promised=False)  # it needs the prompt's logits, not only the keys
        self._name(sequence)
        names = sequence.names[: (len(sequence.tokens) - 1) // self.block_size]
        blocks, furthest = self._usable(names, [pool.holds for pool in self._pools])
        return Hit(blocks, furthest, blocks < len(names) and names[blocks] in self._promises)

    def _usable(self, names: list[bytes], present: Iterable[Callable[[bytes], bool]]) -> tuple[int, int]:
        """`blocks` and `furthest` of a hit among what is present on each kind of layer."""
        runs = [_runs(holds, names) for holds in present]
        furthest = len(names)
        for run, window in zip(runs, self._windows, strict=True):
            if window is None:  # it needs all blocks without a gap
                furthest = min(furthest, max(at for at, first in enumerate(run) if first == at))
        blocks = furthest
        while blocks and any(
            run[blocks] < blocks - self._first_seen(blocks, window)
            for run, window in zip(runs, self._windows, strict=True)
        ):
            blocks -= 1
        return blocks, furthest

    def has_room_for(self, sequence: Sequence, hit: Hit) -> bool:
        """Whether all its tokens and one more fit, as far as windows keep them."""
        wanted = self._blocks_for(len(sequence.tokens) + 1)
        for pool, window in self._kinds:
            first = self._first_seen(hit.blocks, window)
            shared = [pool.find(name) for name in sequence.names[first : hit.blocks]]
            kept = sum(block is not None and pool.is_kept(block) for block in shared)
            new = wanted - hit.blocks
            if kept + (new if window is None else min(new, self._blocks_for(window) + 1)) > pool.available:
                return False
        return True

    def begin(self, sequence: Sequence, hit: Hit) -> None:
        """Gives it the blocks that were found, and promises the rest of its tokens to other sequences."""
        tables, held_from = [], []
        for pool, window in self._kinds:
            first = self._first_seen(hit.blocks, window)
            blocks = [pool.find(name) for name in sequence.names[first : hit.blocks]]
            shared = [block for block in blocks if block is not None]
            for block in shared:
                pool.share(block)
            tables.append([0] * first + shared)
            held_from.append(first)
        size = self.block_size
        # Later prompts may start where this one did, where it could have, and at its end.
        begun = (hit.blocks * size, hit.furthest * size)
        ends = (sequence.prompt_length // size * size, (sequence.prompt_length - 1) // size * size)
        sequence.holding = Holding(tables, held_from, hit.blocks, tuple({*begun, *ends}))
        sequence.launched = sequence.computed = hit.blocks * size
        for name in sequence.names[hit.blocks :]:
            self._promises.setdefault(name, sequence)

    # Lower tiers --------------------------------------------------------------------------------------

    def fetch(self, sequence: Sequence, hit: Hit) -> bool:
        """Whether lower tiers have more than the hit and begin to fill blocks with it. Asked once for each
        start of a sequence, which then looks up again."""
        if self._lower is None or sequence.was_fetched or sequence.scores is not None:
            return False
        sequence.was_fetched, lower = True, self._lower
        names = sequence.names[: (len(sequence.tokens) - 1) // self.block_size]
        blocks, _ = self._usable(names, [partial(self._somewhere, kind) for kind in range(len(self._pools))])
        seen = [names[self._first_seen(blocks, window) : blocks] for window in self._windows]
        found = [[pool.find(name) for name in own] for pool, own in zip(self._pools, seen, strict=True)]
        tables = [[block for block in own if block is not None] for own in found]
        missing = [
            (kind, name)
            for kind, own in enumerate(seen)
            for name, block in zip(own, found[kind], strict=True)
            if block is None
        ]
        has_room = all(
            sum(block is None or pool.is_kept(block) for block in own) <= pool.available
            for pool, own in zip(self._pools, found, strict=True)
        )
        tokens = (blocks - hit.blocks) * self.block_size
        if tokens <= 0 or not has_room or not lower.is_worth(tokens, missing):
            return False
        for pool, table in zip(self._pools, tables, strict=True):
            for block in table:  # before any block is taken
                pool.share(block)
        fetch = Fetch(tables, names[hit.blocks : blocks], [])
        for kind, name in missing:
            pool, table = self._pools[kind], tables[kind]
            table.append(pool.take(table[-1] if table else 0))
            fetch.wanted.append(Place(kind, name, table[-1], pool.taken[table[-1]]))
        for name in fetch.names:
            self._promises.setdefault(name, fetch)
        self._fetches.append(fetch)
        lower.fetch(fetch)
        return True

    def _somewhere(self, kind: int, name: bytes) -> bool:
        assert self._lower is not None
        return self._pools[kind].holds(name) or self._lower.holds(kind, name)

    def take_in_fetched(self) -> None:
        """Names the blocks that have been filled, so that the sequences that wait for them find them."""
        for fetch in [] if self._lower is None else self._lower.arrived():
            if fetch.cancelled:
                continue
            self._fetches.remove(fetch)
            for kind, name, block, _ in fetch.filled:
                self._pools[kind].name(block, name)
            for pool, table in zip(self._pools, fetch.tables, strict=True):
                for block in reversed(table):
                    pool.release(block)
            for name in fetch.names:
                self._keep_promise(name, fetch)

    def is_current(self, place: Place) -> bool:
        """Whether a block still has its content. May be asked by any thread."""
        return self._pools[place.kind].taken.get(place.block) == place.take

    def _offer(self, sequence: Sequence) -> None:
        """Offers what is computed to lower tiers: of layers with a window, the windows at marks, at the end
        and, where they are still in memory, at every STRIDE tokens."""
        if self._lower is None:
            return
        holding, size = _held(sequence), self.block_size
        marks = (*holding.marks, *range(0, len(sequence.tokens), STRIDE))
        ends = [holding.named, *(mark // size for mark in marks if mark // size < holding.named)]
        places = []
        for kind, (pool, window) in enumerate(self._kinds):
            seen = {at for end in ends for at in range(self._first_seen(end, window), end)} if window else ()
            for at in range(holding.named) if window is None else sorted(seen):
                name = sequence.names[at]
                block = pool.find(name)
                if block is not None and not self._lower.holds(kind, name):
                    places.append(Place(kind, name, block, pool.taken[block]))
        if places:
            self._lower.keep(sequence.sampling.cache_salt or "", places)

    # It grows -----------------------------------------------------------------------------------------

    def grow(self, sequence: Sequence, length: int) -> bool:
        """Takes blocks for `length` positions; returns false and takes none if there are too few."""
        tables = _held(sequence).tables
        wanted = self._blocks_for(length)
        if any(wanted - len(table) > pool.available for pool, table in zip(self._pools, tables, strict=True)):
            return False
        for pool, table in zip(self._pools, tables, strict=True):
            while len(table) < wanted:
                table.append(pool.take(table[-1] if table else 0))
        return True

    def computed(self, sequence: Sequence, length: int) -> None:
        """Records that `length` positions are written: names full blocks and moves windows."""
        sequence.computed = length
        self._name(sequence)
        holding = _held(sequence)
        full = min(length // self.block_size, len(sequence.names))
        for at in range(holding.named, full):
            name = sequence.names[at]
            for pool, table in zip(self._pools, holding.tables, strict=True):
                if table[at]:
                    pool.name(table[at], name)
            self._keep_promise(name, sequence)
        holding.named = max(holding.named, full)
        for kind, (pool, window) in enumerate(self._kinds):
            if window is not None:
                self._move_window(holding, kind, pool, max(0, length - window + 1) // self.block_size)
        if not holding.offered and length >= sequence.prompt_length:
            holding.offered = True
            self._offer(sequence)

    def _move_window(self, holding: Holding, kind: int, pool: BlockPool, first: int) -> None:
        table = holding.tables[kind]
        for at in range(holding.held_from[kind], min(first, len(table))):
            pool.release(table[at], last=self._is_marked(holding, kind, at))
            table[at] = 0
        holding.held_from[kind] = max(holding.held_from[kind], min(first, len(table)))

    def _is_marked(self, holding: Holding, kind: int, at: int) -> bool:
        """Whether a prompt that starts at a mark would need this block."""
        window = self._windows[kind] or 0
        size = self.block_size
        return any(mark - window + 1 < (at + 1) * size and at * size < mark for mark in holding.marks)

    # It ends ------------------------------------------------------------------------------------------

    def release(self, sequence: Sequence) -> None:
        """Takes back all its blocks. Named ones can still be found, those of its beginning the longest."""
        self._offer(sequence)
        holding = _held(sequence)
        for pool, table, first in zip(self._pools, holding.tables, holding.held_from, strict=True):
            for at in range(len(table) - 1, first - 1, -1):
                pool.release(table[at])
        for name in sequence.names:
            self._keep_promise(name, sequence)
        sequence.holding = None
        sequence.launched = sequence.computed = 0

    def check_integrity(self, sequences: Iterable[Sequence]) -> None:
        """Raises `IntegrityError` unless the blocks in use are those that these sequences hold."""
        present = list(sequences)
        for kind, pool in enumerate(self._pools):
            tables = [sequence.holding.tables[kind] for sequence in present if sequence.holding is not None]
            tables += [fetch.tables[kind] for fetch in self._fetches]
            pool.check(Counter(block for table in tables for block in table if block))
        owners = {*map(id, present), *map(id, self._fetches)}
        if any(id(owner) not in owners for owner in self._promises.values()):
            raise IntegrityError("A block is promised by a sequence that is gone.")

    # ----------------------------------------------------------------------------------------------------

    def _keep_promise(self, name: bytes, by: Sequence | Fetch) -> None:
        if self._promises.get(name) is by:
            del self._promises[name]

    def _name(self, sequence: Sequence) -> None:
        name_blocks(sequence.tokens, self.block_size, sequence.sampling.cache_salt, sequence.names)

    def _first_seen(self, blocks: int, window: int | None) -> int:
        """The first block that a query right after `blocks` blocks can see, and later queries too."""
        return 0 if window is None else max(0, blocks * self.block_size - window + 1) // self.block_size

    def _blocks_for(self, length: int) -> int:
        return -(-length // self.block_size)


def name_blocks(tokens: list[int], size: int, salt: str | None, names: list[bytes]) -> None:
    """Adds the names of full blocks, each made of the name of the one before and its own tokens."""
    for at in range(len(names), len(tokens) // size):
        first = b"salt " + (salt or "").encode("utf-8", "surrogatepass")
        key = blake2b(names[-1] if names else first, digest_size=32).digest()
        content = array("I", tokens[at * size : (at + 1) * size]).tobytes()
        names.append(blake2b(content, key=key, digest_size=16).digest())


def _runs(holds: Callable[[bytes], bool], names: list[bytes]) -> list[int]:
    """For each number of blocks, how many of the last ones are present without a gap."""
    runs = [0]
    for name in names:
        runs.append(runs[-1] + 1 if holds(name) else 0)
    return runs


def _held(sequence: Sequence) -> Holding:
    assert sequence.holding is not None, "the sequence holds nothing"
    return sequence.holding
