"""The experts' kernels against a reference that unpacks the experts first."""

import math

import pytest
import torch

from inference.ops import expert_kernels, launches
from inference.ops.packing import repack
from tests.doubles.inference.drawn import Draw, mxfp4_experts, relative_error

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
