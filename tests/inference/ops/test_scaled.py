"""The conversion of weights to FP8; test_dense.py multiplies with them."""

import pytest
import torch
from torch import Tensor

from inference.ops.scaled import LARGEST, Rounding, ScaledRows, scaled
from tests.doubles.inference.drawn import relative_error as between


def relative_error(rows: Tensor, found: ScaledRows) -> float:
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
