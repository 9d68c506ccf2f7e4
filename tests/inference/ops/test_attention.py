"""Attention over paged memory against the reference: ragged lengths, windows, groups, large sinks."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inference.ops import reference
from inference.ops.pages import Pages, slot_range
from tests.doubles.inference.drawn import Draw, random_pages, relative_error
from tests.doubles.random_tests.seeds import pairs

BATCHES = [[1], [1, 1, 1], [37], [1, 1, 5, 40], [3, 17, 16]]


def on_cpu(pages: Pages) -> Pages:
    moved = {name: getattr(pages, name).cpu() for name in ("tables", "lengths", "starts", "slots")}
    return replace(pages, **moved)


def attended(
    draw: Draw, pages: Pages, heads: int, kv_heads: int, size: int, fp8: bool = False
) -> tuple[Tensor, Tensor]:
    """The kernels' result and the reference's."""
    from inference.ops import fused

    tokens, blocks = int(pages.starts[-1]), int(pages.tables.max()) + 4
    query, sinks = draw.rows(tokens, heads, size, scale=2.0), draw.rows(heads, scale=3.0)
    # Positions that no query may read hold NaN, those of block 0 too.
    keys, values = (draw.memory(blocks, pages.block_size, kv_heads, size) for _ in range(2))
    for memory in (keys, values):
        memory[~seen_places(pages, blocks)] = float("nan")
    if fp8:
        keys, values = reference.fp8(keys), reference.fp8(values)
    found = fused.paged_attention(query, keys, values, sinks, pages)
    kept = (part.cpu() if fp8 else part.cpu().double() for part in (keys, values))
    wanted = reference.paged_attention(query.cpu().double(), *kept, sinks.cpu().double(), on_cpu(pages))
    assert wanted.dtype == torch.float64
    return found.cpu(), wanted


def seen_places(pages: Pages, blocks: int) -> Tensor:
    size = pages.block_size
    seen = torch.zeros(blocks * size, dtype=torch.bool, device=pages.tables.device)
    tables, lengths, starts = pages.tables.tolist(), pages.lengths.tolist(), pages.starts.tolist()
    for at, length in enumerate(lengths):
        queries = starts[at + 1] - starts[at]
        first = pages.first if pages.window is None else max(pages.first, length - queries - pages.window + 1)
        seen[slot_range(tables[at], first, length, size)] = True
    return seen.view(blocks, size)


@pytest.mark.parametrize(("queries", "window"), pairs(BATCHES, [None, 16, 23]), ids=str)
def test_attention_equals_the_reference(device: torch.device, queries: list[int], window: int | None) -> None:
    draw = Draw(sum(queries) + (window or 0), device)
    found, wanted = attended(draw, random_pages(draw, queries, window, 16), 4, 2, 16)
    assert relative_error(found, wanted) < draw.tolerance


@pytest.mark.parametrize("shape", [(8, 1, 32), (3, 3, 16), (40, 2, 16)])
def test_groups_of_every_size_equal_the_reference(device: torch.device, shape: tuple[int, int, int]) -> None:
    draw = Draw(shape[0], device)
    found, wanted = attended(draw, random_pages(draw, [1, 1, 9], None, 32), *shape)
    assert relative_error(found, wanted) < draw.tolerance


@pytest.mark.parametrize("window", [None, 300])
def test_a_long_past_in_parts_equals_the_reference(device: torch.device, window: int | None) -> None:
    draw = Draw(7, device)
    found, wanted = attended(draw, random_pages(draw, [1, 1, 1], window, 16, past=400), 4, 2, 16)
    assert relative_error(found, wanted) < draw.tolerance


@pytest.mark.parametrize(("window", "past"), pairs([None, 5], [3, 400]))
def test_no_query_sees_a_position_before_the_first(
    device: torch.device, window: int | None, past: int
) -> None:
    """As the places of a draft head, whose first position has no pair."""
    draw = Draw(past, device)
    pages = random_pages(draw, [1, 1, 1, 1], window, 16, past=past)
    longer = replace(pages, lengths=pages.lengths.clamp(min=2), first=1)
    found, wanted = attended(draw, longer, 4, 2, 16)
    assert int(pages.lengths.min()) <= 3 or past > 3
    assert relative_error(found, wanted) < draw.tolerance
    if window is None:
        every, _ = attended(Draw(past, device), replace(longer, first=0), 4, 2, 16)
        assert relative_error(found, every) > 1e-3


def test_padding_rows_do_not_change_other_rows(device: torch.device) -> None:
    from inference.ops import fused

    draw = Draw(3, device)
    pages = random_pages(draw, [1, 1, 1], 16, 16)
    lengths = pages.lengths.clone()
    lengths[2] = 0
    keys, values = (draw.memory(int(pages.tables.max()) + 4, 16, 2, 16) for _ in range(2))
    query, sinks = draw.rows(3, 4, 16), draw.rows(4)
    whole = fused.paged_attention(query, keys, values, sinks, pages)
    padded = fused.paged_attention(query, keys, values, sinks, replace(pages, lengths=lengths))
    assert torch.equal(whole[:2], padded[:2])
    assert torch.isfinite(padded).all()
