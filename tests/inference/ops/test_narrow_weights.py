"""Weights in 16 bits and in FP8: what is lost, and the same products. test_products.py multiplies by FP8."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inference.ops.halves import HalfRows, are_halves, has_halves, linear
from inference.ops.scaled import LARGEST, Rounding, ScaledRows, scaled
from tests.doubles.inference.drawn import relative_error

CPU = torch.device("cpu")
needs_halves = pytest.mark.skipif(not has_halves(CPU), reason="this PyTorch has no FBGEMM")


def drawn(*shape: int, seed: int = 1) -> Tensor:
    """Numbers that bf16 holds, as checkpoints store them."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


@needs_halves
@pytest.mark.parametrize("rows", [1, 2, 8, 33, 256])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_is_that_of_floats(rows: int, bias: bool) -> None:
    weight, x = drawn(1280, 320), drawn(rows, 320, seed=2) / 3
    biases = drawn(1280, seed=3) if bias else None
    found = linear(x, HalfRows(weight), biases)
    assert relative_error(found, functional.linear(x, weight, biases)) < 1e-6


@needs_halves
def test_each_row_of_a_batch_has_the_product_that_it_has_alone() -> None:
    """So that a text does not depend on what else is generated."""
    weight, x = HalfRows(drawn(640, 320)), drawn(8, 320, seed=2)
    alone = torch.cat([linear(row.unsqueeze(0), weight) for row in x])
    assert relative_error(linear(x, weight), alone) < 1e-6


def test_numbers_of_bf16_and_of_mxfp4_are_halves() -> None:
    assert are_halves(drawn(64, 64))
    assert are_halves(torch.tensor([[6.0 * 2.0**-12, 0.5 * 2.0**10, -3.0, 0.0]]))


@pytest.mark.parametrize("number", [1.0001, 70_000.0, float("nan"), float("inf")])
def test_numbers_that_would_change_are_not(number: float) -> None:
    assert not are_halves(torch.tensor([[1.0, number]]))


def rounded(rows: Tensor, found: ScaledRows) -> float:
    rounding = Rounding()
    rounding.count(rows, found)
    return rounding.relative_error()


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
    assert relative_error(found.floats(torch.float32), rows) == pytest.approx(rounded(rows, found))
    # The error is uniform within half a step, and a step is 1/8 of the power of two below the number: with
    # numbers spread evenly over a binade, 1/8 · 1/√12 divided by 1.5 is 2.4 %.
    assert 0.02 < rounded(rows, found) < 0.03


def test_conversion_in_parts_equals_conversion_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(23, 8, generator=torch.Generator().manual_seed(2))
    whole = scaled(rows)
    monkeypatch.setattr("inference.ops.scaled.ROWS_AT_ONCE", 5)
    parts = scaled(rows)
    assert torch.equal(whole.values.view(torch.uint8), parts.values.view(torch.uint8))
    assert torch.equal(whole.scales, parts.scales)
    assert torch.equal(whole.floats(torch.float32), parts.floats(torch.float32))
    assert rounded(rows, parts) == pytest.approx(relative_error(parts.floats(torch.float32), rows))
