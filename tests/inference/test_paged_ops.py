"""The ops on paged memory, compared with the plainest implementation, over random batches."""

import math
import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from inference.ops import reference as ops
from inference.ops.pages import Gathered, Pages, slot_range, span

SIZE = 4
HEADS, KV_HEADS, WIDTH = 6, 2, 8
BLOCKS = 200


def plainly(query: Tensor, keys: Tensor, values: Tensor, sinks: Tensor, window: int | None) -> Tensor:
    """One sequence, query by query and head by head, in float64; keys L×K×D."""
    count, length = len(query), len(keys)
    out = torch.zeros(count, HEADS, WIDTH, dtype=torch.float64)
    for row in range(count):
        last = length - count + row
        first = 0 if window is None else max(0, last - window + 1)
        for head in range(HEADS):
            seen = slice(first, last + 1)
            own_keys, own_values = (x[seen, head // (HEADS // KV_HEADS)].double() for x in (keys, values))
            scores = own_keys @ query[row, head].double() / math.sqrt(WIDTH)
            weights = torch.cat((scores, sinks[head].double().view(1))).softmax(0)[:-1]
            out[row, head] = weights @ own_values
    return out.flatten(1)


class Batch:
    """Sequences of random lengths in scattered blocks, those with one query first."""

    def __init__(self, seed: int, window: int | None, *, run: bool = False) -> None:
        draw, self.random = random.Random(seed), torch.Generator().manual_seed(seed)
        counts = sorted(draw.choice([1, 1, 2, 5, 17]) for _ in range(draw.randint(1, 5)))
        lengths = [count + draw.randint(0, 40) for count in counts]
        free = list(range(1, BLOCKS))
        if not run:
            draw.shuffle(free)
        tables = [[free.pop(0) for _ in range(-(-length // SIZE))] for length in lengths]
        wide = max(map(len, tables))
        starts = [sum(counts[:at]) for at in range(len(counts) + 1)]
        each = zip(tables, lengths, counts, strict=True)
        slots = [slot for table, end, n in each for slot in slot_range(table, end - n, end, SIZE)]
        self.tables, self.lengths, self.counts, self.starts = tables, lengths, counts, starts
        padded = [table + [0] * (wide - len(table)) for table in tables]
        numbers = (torch.tensor(part, dtype=torch.int32) for part in (padded, lengths, starts))
        self.pages = Pages(*numbers, torch.tensor(slots), window, SIZE, counts.count(1), max(counts))
        self.keys, self.values = (
            torch.full((KV_HEADS, BLOCKS, SIZE, WIDTH), math.nan).permute(1, 2, 0, 3) for _ in range(2)
        )
        self.whole = [tuple(self.normal(length, KV_HEADS, WIDTH) for _ in range(2)) for length in lengths]

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random)

    def write(self) -> None:
        """Writes older keys directly, the step's own through the op. Keys that no query sees stay NaN."""
        for at, (table, length, count) in enumerate(zip(self.tables, self.lengths, self.counts, strict=True)):
            window = self.pages.window
            first = 0 if window is None else max(0, length - count - window + 1)
            for place in range(first, length - count):
                for memory, whole in zip((self.keys, self.values), self.whole[at], strict=True):
                    memory[table[place // SIZE], place % SIZE] = whole[place]
        new = [
            torch.cat([whole[part][-count:] for whole, count in zip(self.whole, self.counts, strict=True)])
            for part in range(2)
        ]
        ops.write_kv(self.keys, self.values, new[0], new[1], self.pages)


@pytest.mark.parametrize("gathered", [0, 64, 4096])  # none, in groups, in one
@pytest.mark.parametrize("run", [False, True], ids=["scattered", "in a run"])
@pytest.mark.parametrize("window", [None, 1, 7, 16])
@pytest.mark.parametrize("seed", range(8))
def test_paged_attention_is_attention(
    monkeypatch: pytest.MonkeyPatch, seed: int, window: int | None, run: bool, gathered: int
) -> None:
    monkeypatch.setattr("inference.ops.pages.GATHERED_KEYS", gathered)
    batch = Batch(seed, window, run=run)
    batch.write()
    query, sinks = batch.normal(batch.starts[-1], HEADS, WIDTH), batch.normal(HEADS)
    found = ops.paged_attention(query, batch.keys, batch.values, sinks, batch.pages)
    for at, (keys, values) in enumerate(batch.whole):
        rows = slice(batch.starts[at], batch.starts[at + 1])
        wanted = plainly(query[rows], keys, values, sinks, window)
        assert (found[rows].double() - wanted).norm() <= 1e-5 * wanted.norm()


def test_sequences_are_gathered_with_others_of_similar_length_and_long_ones_are_not() -> None:
    blocks = [4, 5, 4, 1, 1, 60, 130, 2, 128, 120, 128]
    tables = [(range(1, count + 1), count * SIZE) for count in blocks]
    spans = tuple(span(at, at + 1, size, own, None, SIZE) for at, (own, size) in enumerate(tables))
    empty = torch.empty(0, dtype=torch.int64)
    pages = Pages(empty, empty, empty, empty, None, SIZE, len(spans), 1, given_spans=spans)
    found = [(part.start, part.end, isinstance(part, Gathered)) for part in pages.parts]
    # A sixth would make the first copy four times as large.
    assert found == [(0, 5, True), (5, 6, False), (6, 7, False), (7, 11, True)]
    for part in pages.parts:
        if isinstance(part, Gathered):
            longest = max(blocks[part.start : part.end]) * SIZE
            assert part.hiding.shape == (part.end - part.start, 1, longest)
            assert len(part.places) == (part.end - part.start) * longest


def test_padding_rows_write_to_the_unused_block() -> None:
    memory = [torch.zeros(KV_HEADS, 3, SIZE, WIDTH).permute(1, 2, 0, 3) for _ in range(2)]
    none, starts = torch.zeros(1, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    padding = Pages(none.view(1, 1), none, starts, none.long(), None, SIZE, decodes=1, longest=1)
    new = torch.ones(1, KV_HEADS, WIDTH)
    ops.write_kv(memory[0], memory[1], new, new, padding)
    assert all(part[1:].count_nonzero() == 0 for part in memory)


class WithDevice(TorchFunctionMode):
    """Every new tensor must name its device: on a GPU without kernels it would otherwise be on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.tensor, torch.arange, torch.zeros, torch.ones, torch.full, torch.empty):
            assert (kwargs or {}).get("device") is not None, func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("run", [True, False])
def test_attention_creates_its_tensors_on_the_device_of_the_batch(window: int | None, run: bool) -> None:
    gathered = False
    for seed in range(12):
        batch = Batch(seed, window, run=run)
        query, sinks = batch.normal(batch.starts[-1], HEADS, WIDTH), batch.normal(HEADS)
        with WithDevice():
            gathered |= any(isinstance(part, Gathered) for part in batch.pages.parts)
            ops.paged_attention(query, batch.keys, batch.values, sinks, batch.pages)
    assert gathered
