"""FP8 weights: the conversion, and every product against the reference on the floats that they stand for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from inference.config import RopeConfig
from inference.ops import launches, reference
from inference.ops.rope import rope_tables
from inference.ops.scaled import LARGEST, Rounding, ScaledRows, scaled
from tests.doubles.inference.drawn import Draw, random_pages
from tests.doubles.inference.drawn import relative_error as between
from tests.doubles.random_tests.pairs import pairs

EPS = 1e-5


def relative_error(rows: Tensor, found: ScaledRows) -> float:
    rounding = Rounding()
    rounding.count(rows, found)
    return rounding.relative_error()


def drawn(draw: Draw, rows: int, columns: int) -> ScaledRows:
    """Rows of very different sizes, so that a missing or misplaced scale is an error."""
    sizes = torch.exp2(torch.arange(rows) % 7 - 9.0).to(draw.device, draw.dtype)
    return scaled(draw.rows(rows, columns) * sizes[:, None])


def test_scales_are_the_smallest_powers_of_two_that_fit() -> None:
    largest = torch.tensor([448.0, 448.1, 1.0, 0.875, 0.8751, 3e-30, 1e30])
    found = scaled(torch.stack((largest, -largest / 3), 1))
    assert torch.equal(torch.log2(found.scales), torch.log2(found.scales).round())
    assert (found.values.float().abs().amax(1) <= LARGEST).all()
    assert (largest > LARGEST * found.scales / 2).all()
    assert found.scales[:2].tolist() == [1.0, 2.0]


def test_rows_of_zeros_and_large_rows_stay_finite() -> None:
    found = scaled(torch.tensor([[0.0, 0.0], [3e38, -1e30]]))
    assert found.floats(torch.float32)[0].tolist() == [0.0, 0.0]
    assert torch.isfinite(found.floats(torch.float32)).all()


def test_bf16_holds_the_converted_weights_exactly() -> None:
    rows = torch.randn(50, 300, generator=torch.Generator().manual_seed(1)) * 0.02
    found = scaled(rows)
    assert torch.equal(found.floats(torch.bfloat16).float(), found.floats(torch.float32))
    assert between(found.floats(torch.float32), rows) == pytest.approx(relative_error(rows, found))
    # The error is uniform within half a step, and a step is 1/8 of the power of two below the number: with
    # numbers spread evenly over a binade, 1/8 · 1/√12 divided by 1.5 is 2.4 %.
    assert 0.02 < relative_error(rows, found) < 0.03


def test_conversion_in_parts_equals_conversion_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(23, 8, generator=torch.Generator().manual_seed(2))
    whole = scaled(rows)
    monkeypatch.setattr("inference.ops.scaled.ROWS_AT_ONCE", 5)
    parts = scaled(rows)
    assert torch.equal(whole.values.view(torch.uint8), parts.values.view(torch.uint8))
    assert torch.equal(whole.scales, parts.scales)
    assert torch.equal(whole.floats(torch.float32), parts.floats(torch.float32))
    assert relative_error(rows, parts) == pytest.approx(between(parts.floats(torch.float32), rows))


@pytest.mark.parametrize("tokens", [1, 2, 3, 9, 21, 40, 70, 130])
@pytest.mark.parametrize(("heads", "kv_heads", "size", "bias"), [(4, 2, 16, True), (8, 1, 32, False)])
def test_queries_keys_and_values_equal_the_reference(
    device: torch.device, tokens: int, heads: int, kv_heads: int, size: int, bias: bool
) -> None:
    from inference.ops import fused

    draw, hidden = Draw(tokens + size, device), 96
    pages = random_pages(draw, [1] * tokens if tokens < 9 else [1, 1, tokens - 2], None, 16)
    x, norm = draw.rows(tokens, hidden), draw.rows(hidden).float() + 1
    weight = drawn(draw, (heads + 2 * kv_heads) * size, hidden)
    biases = draw.rows((heads + 2 * kv_heads) * size) if bias else None
    cos, sin = (table[5 : 5 + tokens].to(device) for table in rope_tables(RopeConfig(), size, 256))
    blocks = int(pages.tables.max()) + 1
    keys, values = (draw.memory(blocks, 16, kv_heads, size) for _ in range(2))
    wanted_keys, wanted_values = keys.double(), values.double()
    found = fused.qkv(x, norm, EPS, weight, biases, cos, sin, keys, values, pages)
    wanted = reference.qkv(
        x.double(), norm, EPS, weight.floats(torch.float64), None if biases is None else biases.double(),
        cos.double(), sin.double(), wanted_keys, wanted_values, pages,
    )  # fmt: skip
    assert between(found, wanted) < draw.tolerance
    assert between(keys, wanted_keys) < draw.tolerance
    assert between(values, wanted_values) < draw.tolerance


@pytest.mark.parametrize(("tokens", "bias"), pairs([1, 2, 4, 16, 18, 33, 65, 128, 129], [True, False]))
def test_the_output_projection_equals_the_reference(device: torch.device, tokens: int, bias: bool) -> None:
    from inference.ops import fused

    draw = Draw(tokens, device)
    attended, residual = draw.rows(tokens, 160), draw.rows(tokens, 72)
    weight, biases = drawn(draw, 72, 160), draw.rows(72) if bias else None
    found = fused.project_out(attended, weight, biases, residual)
    wanted = reference.project_out(
        attended.double(), weight.floats(torch.float64), None if biases is None else biases.double(),
        residual.double(),
    )  # fmt: skip
    assert found.dtype == residual.dtype
    assert between(found, wanted) < draw.tolerance


def logits(draw: Draw, rows: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Those of the kernels and of the reference."""
    from inference.ops import fused

    x, norm, head = draw.rows(rows, 96), draw.rows(96).float() + 1, drawn(draw, tokens, 96)
    found = fused.head_logits(x, norm, EPS, head)
    assert found.dtype == torch.float32
    return found, reference.head_logits(x.double(), norm, EPS, head.floats(torch.float64).t())


@pytest.mark.parametrize("rows", [1, 2, 11, 17, 50, 128, 140])
def test_logits_equal_the_reference(device: torch.device, rows: int) -> None:
    draw = Draw(rows, device)
    found, wanted = logits(draw, rows, 301)
    assert between(found, wanted) < draw.tolerance


@pytest.mark.parametrize("rows", [3, 20, 40, 100])
def test_a_large_head_equals_the_reference(
    device: torch.device, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large weights are launched in another way, and converted in parts."""
    monkeypatch.setattr(launches, "LARGE_ROWS", 200)
    monkeypatch.setattr("inference.ops.scaled_products.ROWS_AS_FLOATS", 128)
    draw = Draw(rows, device)
    found, wanted = logits(draw, rows, 301)
    assert between(found, wanted) < draw.tolerance
