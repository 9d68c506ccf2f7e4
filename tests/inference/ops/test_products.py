"""Products, norms, rotation, writes to paged memory, experts and logits, against the reference.

Weights are plain or FP8, which the reference multiplies as the floats that they stand for; those of experts
are packed, and the reference unpacks them first. Attention over paged memory: ragged lengths, windows,
groups, large sinks, FP8.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from inference.config import RopeConfig
from inference.ops import expert_kernels, fused, launches, reference
from inference.ops.packing import repack
from inference.ops.pages import Pages, slot_range
from inference.ops.rope import rope_tables
from inference.ops.scaled import FP8, LARGEST, Rows, ScaledRows, scaled
from tests.doubles.inference.drawn import Draw, mxfp4_experts, random_pages, relative_error
from tests.doubles.random_tests.seeds import pairs

EPS = 1e-5


@pytest.mark.parametrize(("tokens", "hidden"), [(1, 64), (3, 96), (20, 160)])
def test_norms_equal_the_reference(device: torch.device, tokens: int, hidden: int) -> None:
    draw = Draw(tokens, device)
    x, weight = draw.rows(tokens, hidden), draw.rows(hidden).float() + 1
    wanted = reference.rms_norm(x.double(), weight, EPS)
    assert relative_error(fused.rms_norm(x, weight, EPS), wanted) < draw.tolerance


def weights(draw: Draw, kind: str, rows: int, columns: int) -> tuple[Rows, Tensor]:
    """As the kernels take them, and in float64."""
    if kind == "plain":
        plain = draw.rows(rows, columns, scale=columns**-0.5)
        return plain, plain.double()
    # Rows of very different sizes, so that a missing or misplaced scale is an error.
    sizes = torch.exp2(torch.arange(rows) % 7 - 9.0).to(draw.device, draw.dtype)
    found = scaled(draw.rows(rows, columns) * sizes[:, None])
    return found, found.floats(torch.float64)


def cases(plain: Sequence[int], fp8: Sequence[int]) -> list[tuple[str, int]]:
    return [*(("plain", rows) for rows in plain), *(("fp8", rows) for rows in fp8)]


@pytest.mark.parametrize(
    ("case", "shape"),
    pairs(cases([1, 3, 9, 21], [1, 2, 3, 9, 21, 40, 70, 130]), [(4, 2, 16, True), (8, 1, 32, False)]),
)
def test_queries_keys_and_values_equal_the_reference(
    device: torch.device, case: tuple[str, int], shape: tuple[int, int, int, bool]
) -> None:
    (kind, tokens), (heads, kv_heads, size, bias) = case, shape
    draw, hidden = Draw(tokens + size, device), 96
    pages = random_pages(draw, [1] * tokens if tokens < 9 else [1, 1, tokens - 2], None, 16)
    x, norm = draw.rows(tokens, hidden), draw.rows(hidden).float() + 1
    weight, floats = weights(draw, kind, (heads + 2 * kv_heads) * size, hidden)
    biases = draw.rows((heads + 2 * kv_heads) * size) if bias else None
    doubled = None if biases is None else biases.double()
    cos, sin = (table[5 : 5 + tokens].to(device) for table in rope_tables(RopeConfig(), size, 256))
    blocks = int(pages.tables.max()) + 1
    keys, values = (draw.memory(blocks, 16, kv_heads, size) for _ in range(2))
    kept = keys.clone(), values.clone()
    wanted_keys, wanted_values = keys.double(), values.double()
    found = fused.qkv(x, norm, EPS, weight, biases, cos, sin, keys, values, pages)
    wanted_memory = cos.double(), sin.double(), wanted_keys, wanted_values, pages
    wanted = reference.qkv(x.double(), norm, EPS, floats, doubled, *wanted_memory)
    for own, right in ((found, wanted), (keys, wanted_keys), (values, wanted_values)):
        assert relative_error(own, right) < draw.tolerance
    written = torch.zeros(blocks * 16, dtype=torch.bool, device=device).index_fill_(0, pages.slots, True)
    untouched = ~written.view(blocks, 16)
    for before, after in zip(kept, (keys, values), strict=True):
        assert torch.equal(before[untouched], after[untouched])


@pytest.mark.parametrize("heads", [0, 4])
@pytest.mark.parametrize("tokens", [1, 21])
def test_a_finished_product_is_rotated_and_written_as_in_the_reference(
    device: torch.device, tokens: int, heads: int
) -> None:
    draw, kv_heads, size = Draw(tokens + heads, device), 2, 16
    pages = random_pages(draw, [1] * tokens, None, 16)
    projected = draw.rows(tokens, (heads + 2 * kv_heads) * size)
    cos, sin = (table[5 : 5 + tokens].to(device) for table in rope_tables(RopeConfig(), size, 64))
    memory = [draw.memory(int(pages.tables.max()) + 1, 16, kv_heads, size) for _ in range(2)]
    wanted_memory = [part.double() for part in memory]
    found = fused.rotate_and_write(projected, cos, sin, *memory, pages)
    wanted = reference.rotate_and_write(projected.double(), cos.double(), sin.double(), *wanted_memory, pages)
    assert found.shape == wanted.shape == (tokens, heads, size)
    assert not heads or relative_error(found, wanted) < draw.tolerance
    assert all(relative_error(*pair) < draw.tolerance for pair in zip(memory, wanted_memory, strict=True))


@pytest.mark.parametrize(
    ("case", "bias"), pairs(cases([1, 4, 6, 18], [1, 2, 4, 16, 18, 33, 65, 128, 129]), [True, False])
)
def test_the_output_projection_equals_the_reference(
    device: torch.device, case: tuple[str, int], bias: bool
) -> None:
    kind, tokens = case
    draw = Draw(tokens, device)
    attended, residual = draw.rows(tokens, 160), draw.rows(tokens, 72)
    (weight, floats), biases = weights(draw, kind, 72, 160), draw.rows(72) if bias else None
    found = fused.project_out(attended, weight, biases, residual)
    doubled = None if biases is None else biases.double()
    wanted = reference.project_out(attended.double(), floats, doubled, residual.double())
    assert found.dtype == residual.dtype
    assert relative_error(found, wanted) < draw.tolerance


def logits_error(draw: Draw, kind: str, rows: int) -> float:
    x, norm = draw.rows(rows, 96), draw.rows(96).float() + 1
    head, floats = weights(draw, kind, 301, 96)
    found = fused.head_logits(x, norm, EPS, head if isinstance(head, ScaledRows) else head.t())
    assert found.dtype == torch.float32
    return relative_error(found, reference.head_logits(x.double(), norm, EPS, floats.t()))


@pytest.mark.parametrize(("kind", "rows"), cases([1, 2, 11, 17], [1, 2, 11, 17, 50, 128, 140]))
def test_logits_equal_the_reference(device: torch.device, kind: str, rows: int) -> None:
    draw = Draw(rows, device)
    assert logits_error(draw, kind, rows) < draw.tolerance


@pytest.mark.parametrize("rows", [3, 20, 40, 100])
def test_a_large_head_in_fp8_equals_the_reference(
    device: torch.device, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large weights are launched in another way, and converted in parts."""
    monkeypatch.setattr(launches, "LARGE_ROWS", 200)
    monkeypatch.setattr("inference.ops.scaled_products.ROWS_AS_FLOATS", 128)
    draw = Draw(rows, device)
    assert logits_error(draw, "fp8", rows) < draw.tolerance


@pytest.mark.parametrize(("tokens", "experts", "per_token"), [(1, 4, 2), (5, 6, 3), (9, 32, 4), (130, 5, 1)])
def test_routes_equal_the_reference(device: torch.device, tokens: int, experts: int, per_token: int) -> None:
    draw = Draw(tokens, device)
    x, norm = draw.rows(tokens, 96), draw.rows(96).float() + 1
    weight, bias = draw.rows(experts, 96, scale=0.3), draw.rows(experts)
    for _ in range(2):  # the kernel must reset its counters
        normed, chosen, shares = fused.norm_and_route(x, norm, EPS, weight, bias, per_token)
        wanted = reference.rms_norm(x.double(), norm, EPS)
        assert relative_error(normed, wanted) < draw.tolerance
        logits = torch.nn.functional.linear(normed.double(), weight.double(), bias.double())
        best = logits.topk(per_token)
        near = 1e-5 if device.type == "cpu" else 0.03  # of two experts with equal logits, either is right
        assert torch.allclose(logits.gather(1, chosen), best.values, rtol=0, atol=near)
        assert all(len(set(row)) == per_token for row in chosen.tolist())
        assert relative_error(shares, torch.softmax(logits.gather(1, chosen), 1)) < draw.tolerance


def test_of_equal_experts_the_first_is_chosen(device: torch.device) -> None:
    draw = Draw(1, device)
    weight = draw.rows(1, 64).expand(6, 64).contiguous()
    norm, bias = torch.ones(64, device=device), torch.ones(6, device=device)
    _, chosen, shares = fused.norm_and_route(draw.rows(2, 64), norm, EPS, weight, bias, 3)
    assert chosen.tolist() == [[0, 1, 2]] * 2
    assert torch.allclose(shares.float(), torch.full((2, 3), 1 / 3, device=device))


# Tokens, experts, per token, hidden, intermediate.
FEW = [(1, 4, 2, 64, 64), (1, 8, 4, 192, 96), (2, 5, 3, 96, 64)]
SHAPES = [*FEW, (7, 6, 3, 64, 96), (40, 3, 2, 64, 32), (260, 4, 4, 32, 32)]
RARE = pytest.param((1, 4, 3, True, 2), marks=pytest.mark.proof)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_experts_equal_the_reference(device: torch.device, shape: tuple[int, ...]) -> None:
    draw = Draw(shape[0] + shape[3], device)
    assert error_of(draw, *shape) < draw.tolerance


@pytest.mark.parametrize("numbers", [(8, 2, 2, True, 3, 2), (4, 4, 3, False), (16, 8, 3, False, 1, 2), RARE])
def test_every_launch_gives_the_reference(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    """Also if an expert has fewer fragments than a program, or fewer tiles of columns than warps."""
    how = launches.Product(*numbers)
    monkeypatch.setattr(launches, "BY_PAIRS", ((math.inf, launches.ExpertTiles(16, how, how)),))
    draw = Draw(17, device)
    assert error_of(draw, 7, 6, 3, 192, 96) < draw.tolerance


def test_no_launch_uses_the_configuration_with_wrong_sums() -> None:
    """An H100 with Triton 3.6.0 computed wrong sums; the interpreter cannot show that."""
    for _, how in (*launches.BY_PAIRS, (1.0, launches.ALONE)):
        for product in (how.gate_up, how.down):
            assert product.by_columns or (product.fragments, product.warps) != (8, 8)


def error_of(draw: Draw, tokens: int, experts: int, per_token: int, hidden: int, intermediate: int) -> float:
    *first, bias = draw.mxfp4(experts, 2 * intermediate, hidden)
    *second, second_bias = draw.mxfp4(experts, hidden, intermediate)
    x = draw.rows(tokens, hidden)
    chosen, shares = draw.choices(tokens, experts, per_token)
    packed, second_packed = repack(*first, paired=True), repack(*second, paired=False)
    mixture = expert_kernels.Mixture(packed, bias, second_packed, second_bias, limit=2.0, alpha=1.702)
    floats = (*first, bias.double()), (*second, second_bias.double())
    wanted = mxfp4_experts(x.double(), chosen, shares.double(), *floats, 2.0, 1.702)
    return relative_error(mixture.forward(x, chosen, shares), wanted)


CHOICES = [(2, 5, 3), (8, 128, 4), (40, 3, 2), (64, 128, 4), (130, 32, 4), (300, 32, 4), (700, 5, 3)]


@pytest.mark.parametrize(("tokens", "experts", "per_token"), CHOICES)
def test_pairs_are_sorted_and_cut_as_the_library_does(
    device: torch.device, tokens: int, experts: int, per_token: int
) -> None:
    """Also into more tiles than the kernel cuts in one turn."""
    chosen, _ = Draw(tokens, device).choices(tokens, experts, per_token)
    size = launches.of_experts(tokens, chosen.numel(), experts).tokens
    most = min(chosen.numel(), experts) + chosen.numel() // size
    found = expert_kernels._sorted(chosen, experts, size, most)
    assert torch.equal(found.order.long(), chosen.view(-1).argsort(stable=True))
    wanted: list[tuple[int, int, int]] = []
    end = 0
    for expert, count in enumerate(torch.bincount(chosen.view(-1), minlength=experts).tolist()):
        wanted += [(expert, at, min(at + size, end + count)) for at in range(end, end + count, size)]
        end += count
    tiles = list(zip(found.experts.tolist(), found.starts.tolist(), found.ends.tolist(), strict=True))
    assert tiles[: len(wanted)] == wanted
    assert all(start == end for _, start, end in tiles[len(wanted) :])


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
