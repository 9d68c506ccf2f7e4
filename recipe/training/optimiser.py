"""Muon for the matrices inside the layers, Adam for everything else, and late in a run for all.

Muon is faster at first. But its steps are as large for noise as for what the batches agree on: the better the
model, the larger the share of noise, and the loss falls only with the rate. Adam's steps are small where
gradients contradict each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from recipe.training.precision import products_in_bf16

# Newton-Schulz iterations: few and bold, since a step need not be precise.
_STEPS = ((8.2872, -23.5959, 17.3004), (4.1071, -2.9478, 0.5448), (3.9487, -2.9089, 0.5518))
_MOMENTUM = 0.98  # long, because steps are as large for noise as for signal, and batches are small
_BETAS = (0.95, 0.99)


def orthogonalised(matrices: Tensor) -> Tensor:
    """Roughly the nearest orthogonal matrices, by Newton-Schulz; leading dimensions stack matrices."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) * 1.01 + 1e-7)
    if products_in_bf16(matrices.device):
        x = x.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for a, b, c in _STEPS:
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    result: Tensor = (x.mT if tall else x).float()
    return result


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are made orthogonal."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        momentum: float = _MOMENTUM,
        decay: float = 0.05,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "average" not in state:
                    state["average"] = torch.zeros_like(parameter)
                average = state["average"]
                average.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalised(parameter.grad.lerp(average, group["momentum"]))
                scale = max(1.0, parameter.shape[-2] / parameter.shape[-1]) ** 0.5
                parameter.mul_(1 - group["lr"] * group["decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)


# Full rates. The maps of codes move all rows together, so their rate is small. A learned row moves only when
# its token occurs, and competes with codes ten times its size: at the rate of the rest it never matters.
_RATES = {"matrices": 4e-3, "rest": 3e-3, "maps": 1.2e-3, "learned_in": 1e-1, "learned_out": 8e-3}
_MUON_RATE = 0.012
# Rows must hardly move once layers have learned to read them: their rates have already fallen.
_ROWS, _SETTLED = ("maps", "learned_in", "learned_out"), 0.2
# Adam scales even the smallest gradients to full steps. Every batch without a token as a target pushes its
# row of the head away a little: without a floor those pushes would outweigh the few batches that have it.
_FLOORS = {"learned_in": 1e-6, "learned_out": 3e-6}


def _group_of(name: str) -> str:
    if name.startswith("map_"):
        return "maps"
    if name in _RATES:
        return name
    inside = name.startswith("layers.") and name.endswith("proj")
    return "matrices" if inside or name.endswith("proj.weight") else "rest"


def optimisers(model: nn.Module, *, late: bool, settled: bool) -> list[torch.optim.Optimizer]:
    """`settled`: the run starts from a trained model."""
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in _RATES}
    on_card = any(parameter.is_cuda for parameter in model.parameters())
    for name, parameter in model.named_parameters():
        groups[_group_of(name)].append(parameter)
    found: list[torch.optim.Optimizer] = []
    if not late:
        found.append(Muon(groups.pop("matrices"), lr=_MUON_RATE))
    adam = [
        {
            "params": parameters,
            "lr": _RATES[name] * (_SETTLED if settled and name in _ROWS else 1),
            "eps": _FLOORS.get(name, 1e-8),
        }
        for name, parameters in groups.items()
    ]
    found.append(torch.optim.AdamW(adam, betas=_BETAS, weight_decay=0.0, fused=on_card or None))
    for group in groups_of(found):
        group["full"] = group["lr"]
    return found


def groups_of(some: list[torch.optim.Optimizer]) -> list[dict[str, Any]]:
    return [group for optimiser in some for group in optimiser.param_groups]


def set_rates(some: list[torch.optim.Optimizer], factor: float) -> None:
    """Sets the full rates times `factor`."""
    for group in groups_of(some):
        group["lr"] = group["full"] * factor


def restore(optimiser: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Restores the averages; rates and other settings stay those of the current recipe."""
    optimiser.load_state_dict({**saved, "param_groups": optimiser.state_dict()["param_groups"]})
