"""Training's variants for a GPU, compared with those for a CPU; and batches from several processes."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from inference.tiny.shape import Shape
from recipe.network import attention
from recipe.network.attention import sink_attention
from recipe.network.experts import Experts
from recipe.network.model import rotation
from recipe.training.batches import learned_tokens
from recipe.training.feeder import Feeder
from recipe.training.impostors import Impostors


@pytest.mark.parametrize("window", [None, 16, 150])
def test_attention_for_a_gpu_is_the_same(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, 300, heads, 32, requires_grad=True) for heads in (6, 2, 2)]
    sinks, weights = torch.randn(6, requires_grad=True), torch.randn(2, 300, 6 * 32)
    wanted = sink_attention(*inputs, sinks, window)
    theirs = torch.autograd.grad(wanted, [*inputs, sinks], weights)
    fused = Mock(wraps=attention._fused)
    monkeypatch.setattr(attention._Blocks, "apply", fused)
    found = sink_attention(*inputs, sinks, window)
    fused.assert_called_once()
    assert torch.allclose(found, wanted, atol=1e-5)
    ours = torch.autograd.grad(found, [*inputs, sinks], weights)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


def test_experts_for_a_gpu_are_the_same() -> None:
    torch.manual_seed(0)
    experts = Experts(Shape())
    experts.quantised = True
    with torch.no_grad():
        for parameter in experts.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    inputs = torch.randn(200, experts.shape.hidden_size)
    whose = torch.randint(0, 8, (200,)).sort().values
    whose[whose == 3] = 4  # one expert gets no token
    belongs = whose.unsqueeze(1) == torch.arange(8)
    counts = belongs.sum(0)
    wanted, found = experts._each(inputs, counts), experts._grouped(inputs, belongs, counts)
    assert torch.allclose(found, wanted, atol=1e-5)
    learned = [parameter for name, parameter in experts.named_parameters() if "router" not in name]
    theirs = torch.autograd.grad(wanted.square().sum(), learned)
    ours = torch.autograd.grad(found.square().sum(), learned)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() / b.norm() < 1e-5


def test_larger_batches_have_proportionally_more_impostors() -> None:
    torch.manual_seed(0)
    rows = torch.randn(5_000, 8)
    hidden, losses, places = torch.randn(900, 8), torch.rand(900), torch.arange(900)
    some = Impostors(rows.to, half=False).of(hidden, losses, places, torch.tensor([7]))[0]
    more = Impostors(rows.to, half=False, times=4).of(hidden, losses, places, torch.tensor([7]))[0]
    assert len(more) > 1.5 * len(some)
    assert len(set(more.tolist())) == len(more)


@pytest.mark.training
def test_several_processes_take_turns_and_are_reproducible() -> None:
    learned = learned_tokens(1, sample=60)

    def made() -> list[bytes]:
        feeder = Feeder("seed", learned, 1024, processes=2)
        try:
            return [feeder.next().tokens.tobytes() for _ in range(6)]
        finally:
            feeder.close()

    first = made()
    assert made() == first
    assert len(set(first)) == len(first)
    alone = Feeder("seed", learned, 1024)
    assert [alone.next().tokens.tobytes() for _ in range(3)] == first[::2]
    alone.close()


def test_tokens_that_occur_are_the_first_candidates() -> None:
    feeder = Feeder("seed", learned_tokens(1, sample=60), 1024)
    batch = feeder.next()
    feeder.close()
    assert np.array_equal(np.unique(batch.tokens), np.arange(batch.tokens.max() + 1))


def test_training_can_use_a_rotation_that_serving_cached() -> None:
    with torch.inference_mode():
        cos, _ = rotation(Shape(), 77)
    x = torch.ones(77, Shape().head_dim // 2, requires_grad=True)
    (x * cos).sum().backward()
    assert x.grad is not None
