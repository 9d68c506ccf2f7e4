"""Keys and values in FP8: what is written, and attention over it, against the reference."""

import pytest
import torch
from torch import Tensor

from inference.config import RopeConfig
from inference.ops import reference
from inference.ops.rope import rope_tables
from inference.ops.scaled import FP8, LARGEST
from tests.doubles.inference.drawn import Draw, random_pages, relative_error
from tests.inference.ops.test_attention import BATCHES, attended, on_cpu

EPS = 1e-5


def kept(draw: Draw, blocks: int, size: int, kv_heads: int, dims: int) -> Tensor:
    return reference.fp8(draw.memory(blocks, size, kv_heads, dims))


@pytest.mark.parametrize("window", [None, 23])
@pytest.mark.parametrize("queries", BATCHES, ids=str)
def test_attention_equals_the_reference(device: torch.device, queries: list[int], window: int | None) -> None:
    draw = Draw(sum(queries) + (window or 0), device)
    found, wanted = attended(draw, random_pages(draw, queries, window, 16), 4, 2, 16, fp8=True)
    assert relative_error(found, wanted) < draw.tolerance


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
    fused.qkv(x, norm, EPS, weight, None, cos, sin, keys, values, pages)
    reference.qkv(
        x.cpu().double(), norm.cpu(), EPS, weight.cpu().double(), None, cos.cpu().double(),
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
