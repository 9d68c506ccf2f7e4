"""Attention over paged memory against the reference: ragged lengths, windows, groups, large sinks, FP8."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inference.config import RopeConfig
from inference.ops import reference
from inference.ops.pages import Pages, slot_range
from inference.ops.rope import rope_tables
from inference.ops.scaled import FP8, LARGEST
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


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize(("queries", "window"), pairs(BATCHES, [None, 16, 23]), ids=str)
def test_attention_equals_the_reference(
    device: torch.device, queries: list[int], window: int | None, fp8: bool
) -> None:
    draw = Draw(sum(queries) + (window or 0), device)
    found, wanted = attended(draw, random_pages(draw, queries, window, 16), 4, 2, 16, fp8)
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


def kept(draw: Draw, blocks: int, size: int, kv_heads: int, dims: int) -> Tensor:
    return reference.fp8(draw.memory(blocks, size, kv_heads, dims))


@pytest.mark.parametrize("tokens", [1, 2, 5, 21])
def test_keys_and_values_are_rounded_to_the_nearest_and_bounded(device: torch.device, tokens: int) -> None:
    from inference.ops import fused

    draw, hidden, heads, kv_heads, size = Draw(tokens, device), 96, 4, 2, 16
    pages = random_pages(draw, [1] * tokens if tokens < 9 else [1, 1, tokens - 2], None, 16)
    x, norm = draw.rows(tokens, hidden), draw.rows(hidden).float() + 1
    weight = draw.rows((heads + 2 * kv_heads) * size, hidden, scale=60.0)  # many numbers exceed 448
    cos, sin = (table[5 : 5 + tokens].to(device) for table in rope_tables(RopeConfig(), size, 64))
    blocks = int(pages.tables.max()) + 1
    keys, values = (kept(draw, blocks, 16, kv_heads, size) for _ in range(2))
    wanted_keys, wanted_values = keys.cpu().clone(), values.cpu().clone()
    fused.qkv(x, norm, 1e-5, weight, None, cos, sin, keys, values, pages)
    reference.qkv(
        x.cpu().double(), norm.cpu(), 1e-5, weight.cpu().double(), None, cos.cpu().double(),
        sin.cpu().double(), wanted_keys, wanted_values, on_cpu(pages),
    )  # fmt: skip
    for found, wanted in ((keys, wanted_keys), (values, wanted_values)):
        assert float(found.float().abs().max()) == LARGEST
        assert torch.isfinite(found.float()).all()
        # A number halfway between two may be rounded either way where sums differ in their last bit.
        steps = found.cpu().view(torch.uint8).int() - wanted.view(torch.uint8).int()
        assert int(steps.abs().max()) <= 1
        assert int(steps.count_nonzero()) <= 0.01 * steps.numel()


def test_the_reference_writes_and_reads_fp8_as_its_floats() -> None:
    draw = Draw(3, torch.device("cpu"))
    pages = random_pages(draw, [1, 1, 1, 9], 23, 16)
    blocks = int(pages.tables.max()) + 4
    keys, values = (kept(draw, blocks, 16, 2, 16) for _ in range(2))
    plain = keys.float(), values.float()
    new = draw.rows(12, 2, 16, scale=300.0), draw.rows(12, 2, 16)
    reference.write_kv(keys, values, *new, pages)
    reference.write_kv(*plain, *(reference.fp8(part).float() for part in new), pages)
    query, sinks = draw.rows(12, 4, 16), draw.rows(4)
    found = reference.paged_attention(query, keys, values, sinks, pages)
    assert found.dtype == query.dtype
    assert torch.equal(found, reference.paged_attention(query, *plain, sinks, pages))
    assert keys.dtype == FP8
