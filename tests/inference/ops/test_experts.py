"""The experts' kernels against a reference that unpacks the experts first."""

from __future__ import annotations

import math

import pytest
import torch

from tests.doubles.inference.drawn import Draw, mxfp4_experts, relative_error

SHAPES = [  # tokens, experts, per token, hidden, intermediate
    (1, 4, 2, 64, 64),
    (1, 8, 4, 192, 96),
    (2, 5, 3, 96, 64),
    (7, 6, 3, 64, 96),
    (40, 3, 2, 64, 32),
    (260, 4, 4, 32, 32),
]


@pytest.mark.parametrize(("tokens", "experts", "per_token", "hidden", "intermediate"), SHAPES)
def test_experts_equal_the_reference(
    device: torch.device, tokens: int, experts: int, per_token: int, hidden: int, intermediate: int
) -> None:
    draw = Draw(tokens + hidden, device)
    assert error_of(draw, tokens, experts, per_token, hidden, intermediate) < draw.tolerance


@pytest.mark.parametrize(
    "numbers",
    [
        (8, 2, 2, True, 3, 2),
        (4, 4, 3, False),
        (16, 8, 3, False, 1, 2),
        pytest.param((1, 4, 3, True, 2), marks=pytest.mark.proof),
    ],
)
def test_every_launch_gives_the_reference(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...]
) -> None:
    """Also if an expert has fewer fragments than a program, or fewer tiles of columns than warps."""
    from inference.ops import launches

    how = launches.Product(*numbers)
    monkeypatch.setattr(launches, "BY_PAIRS", ((math.inf, launches.ExpertTiles(16, how, how)),))
    draw = Draw(17, device)
    assert error_of(draw, 7, 6, 3, 192, 96) < draw.tolerance


def test_no_launch_uses_the_configuration_with_wrong_sums() -> None:
    """An H100 with Triton 3.6.0 computed wrong sums; the interpreter cannot show that."""
    from inference.ops import launches

    for _, how in (*launches.BY_PAIRS, (1.0, launches.ALONE)):
        for product in (how.gate_up, how.down):
            assert product.by_columns or (product.fragments, product.warps) != (8, 8)


def error_of(draw: Draw, tokens: int, experts: int, per_token: int, hidden: int, intermediate: int) -> float:
    from inference.ops.expert_kernels import Mixture
    from inference.ops.packing import repack

    first, second = (draw.mxfp4(experts, 2 * intermediate, hidden), draw.mxfp4(experts, hidden, intermediate))
    x = draw.rows(tokens, hidden)
    chosen, shares = draw.choices(tokens, experts, per_token)
    mixture = Mixture(
        repack(*first[:2], paired=True),
        first[2],
        repack(*second[:2], paired=False),
        second[2],
        limit=2.0,
        alpha=1.702,
    )
    found = mixture.forward(x, chosen, shares)
    wanted = mxfp4_experts(
        x.double(), chosen, shares.double(), (first[0], first[1], first[2].double()),
        (second[0], second[1], second[2].double()), 2.0, 1.702,
    )  # fmt: skip
    return relative_error(found, wanted)


@pytest.mark.parametrize(
    ("tokens", "experts", "per_token"),
    [(2, 5, 3), (8, 128, 4), (40, 3, 2), (64, 128, 4), (130, 32, 4), (300, 32, 4), (700, 5, 3)],
)
def test_pairs_are_sorted_and_cut_as_the_library_does(
    device: torch.device, tokens: int, experts: int, per_token: int
) -> None:
    """Also into more tiles than the kernel cuts in one turn."""
    from inference.ops import expert_kernels, launches

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
