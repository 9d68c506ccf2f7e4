"""Weights in 16 bits and in FP8: what is lost, and the same products. test_products.py multiplies by FP8.
Sampling by the plain ops and on the device: the same distribution.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inference.engine import Sampling
from inference.ops import fused
from inference.ops import sampling as plain
from inference.ops.halves import HalfRows, are_halves, has_halves, linear
from inference.ops.scaled import LARGEST, ScaledRows, rounding_error, scaled, squares
from tests.doubles.inference.drawn import Draw, relative_error
from tests.inference.local.sampling.test_sampler import naive

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
    return rounding_error(squares(rows, found))


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


VOCABULARY = 301


def picking(device: torch.device, rows: int, **fields: float | Tensor) -> plain.Picking:
    """Uses neutral values for omitted fields; a single number applies to all rows."""
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "points": 0.5}
    dtypes = {"top_k": torch.int32, "points": torch.float64}
    found = {
        name: torch.as_tensor(fields.pop(name, value)).to(device, dtypes.get(name, torch.float32))
        for name, value in neutral.items()
    }
    found = {name: numbers.expand(rows).contiguous() for name, numbers in found.items()}
    return plain.Picking(**found, **fields)  # type: ignore[arg-type]


Sample = Callable[[Tensor, plain.Picking], list[int]]


@pytest.fixture(params=[plain, fused], ids=["plain", "fused"])
def sample(request: pytest.FixtureRequest) -> Sample:
    return lambda logits, how: request.param.sample(logits, how).tolist()


def test_without_temperature_the_first_of_the_best_is_picked(device: torch.device, sample: Sample) -> None:
    logits = Draw(1, device).rows(3, VOCABULARY).float()
    logits[1, 40] = logits[1, 200] = 9.0
    assert sample(logits, picking(device, 3, temperature=0.0)) == logits.argmax(1).tolist()
    assert sample(logits, picking(device, 3, temperature=0.0))[1] == 40


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter's numpy
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_gives_no_token(device: torch.device, sample: Sample, broken: float) -> None:
    logits = Draw(2, device).rows(2, VOCABULARY).float()
    logits[0, slice(None) if broken == float("-inf") else 77] = broken
    assert sample(logits, picking(device, 2))[0] == -1
    assert sample(logits, picking(device, 2, temperature=0.0))[0] == -1
    assert sample(logits, picking(device, 2))[1] >= 0


MIXED = {"min_p": 0.02, "top_p": 0.9, "temperature": 1.5}
FIELDS: list[dict[str, float]] = [{}, {"top_k": 5}, {"top_p": 0.7}, MIXED, {"top_k": 20, "top_p": 0.8}]
RARER = [{"temperature": 0.6}, {"min_p": 0.1}, {"min_p": 0.05, "top_k": 7}, {"top_p": 1e-6}, {"top_k": 1}]
RARE = [pytest.param(fields, marks=pytest.mark.proof) for fields in RARER]


@pytest.mark.parametrize("fields", [*FIELDS, *RARE], ids=str)
def test_tokens_have_their_probabilities(
    device: torch.device, sample: Sample, fields: dict[str, float]
) -> None:
    """With evenly spread points, each token's share is its probability, in any order of tokens."""
    rows = 16
    logits = (Draw(3, device).rows(1, 24, scale=2.0).float()).expand(rows, 24).contiguous()
    points = (torch.arange(rows, device=device) + 0.5) / rows
    found = sample(logits, picking(device, rows, points=points, **fields))
    weights = naive(logits[0].cpu(), Sampling(**fields))  # type: ignore[arg-type]
    counts = torch.bincount(torch.tensor(found), minlength=24) / rows
    assert set(found) <= set(weights.nonzero().flatten().tolist())
    assert float((counts - weights).abs().max()) <= 1.01 / rows + 1e-6


def test_a_large_vocabulary_is_drawn_from_in_chunks(device: torch.device, sample: Sample) -> None:
    logits = Draw(5, device).rows(1, 9000).float()
    weights = torch.softmax(logits[0].double(), 0).cumsum(0)
    for point in (0.0, 0.1, 0.43, 0.77, 0.999):
        token = sample(logits, picking(device, 1, points=point))[0]
        before = float(weights[token - 1]) if token else 0.0
        assert before - 1e-5 <= point <= float(weights[token]) + 1e-5


def test_masks_adjustments_and_numbers_apply_only_to_their_rows(device: torch.device, sample: Sample) -> None:
    logits = Draw(6, device).rows(4, VOCABULARY).float()
    best = logits.argmax(1).tolist()
    masks = torch.zeros(2, -(-VOCABULARY // 8), dtype=torch.uint8)
    masks[1, 10 // 8] = 1 << 10 % 8  # mask 0 forbids all
    adjustments = torch.zeros(1, VOCABULARY)
    adjustments[0, 123] = 50.0
    mask_of, adjustment_of = torch.tensor([[-1, 1, 0, -1], [-1, -1, -1, 0]], dtype=torch.int32, device=device)
    masked: dict[str, Tensor] = {"masks": masks.to(device), "mask_of": mask_of}
    adjusted = {"adjustments": adjustments.to(device), "adjustment_of": adjustment_of}
    own = {"temperature": torch.tensor([0.0, 0.0, 0.0, 1.0]), "top_k": torch.tensor([0, 0, 0, 1])}
    found = sample(logits, picking(device, 4, **own, **masked, **adjusted))
    assert found == [best[0], 10, -1, 123]


def test_tokens_past_the_end_of_a_mask_are_forbidden(device: torch.device, sample: Sample) -> None:
    logits = torch.arange(40, dtype=torch.float32, device=device).view(1, 40)
    masks = torch.tensor([[255, 1]], dtype=torch.uint8, device=device)
    of = torch.zeros(1, dtype=torch.int32, device=device)
    assert sample(logits, picking(device, 1, temperature=0.0, masks=masks, mask_of=of)) == [8]
