"""Weights in 16 bits on a CPU: the same products, only where nothing is lost."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inference.ops.halves import HalfRows, are_halves, has_halves, linear
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
