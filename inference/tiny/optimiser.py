"""Muon for the matrices inside the layers, Adam for all else."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

_STEPS = ((3.4445, -4.7750, 2.0315),) * 5


def orthogonalised(matrices: Tensor) -> Tensor:
    """The nearest orthogonal matrices, roughly, by Newton-Schulz; any number of them stacked in front."""
    x = (matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)).bfloat16()
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
        self, parameters: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.05
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


def optimisers(model: nn.Module) -> tuple[Muon, torch.optim.AdamW]:
    matrices: list[nn.Parameter] = []
    maps: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if name.startswith("map_"):
            maps.append(parameter)
        elif (name.startswith("layers.") and name.endswith("proj")) or name.endswith("proj.weight"):
            matrices.append(parameter)
        else:
            rest.append(parameter)
    adam = torch.optim.AdamW([{"params": rest}, {"params": maps}], betas=(0.9, 0.98), weight_decay=0.0)
    return Muon(matrices, lr=0.0), adam


def set_rates(both: tuple[Muon, torch.optim.AdamW], factor: float) -> None:
    """The full rates, times `factor`; the maps of codes turn all rows at once, so theirs is small."""
    muon, adam = both
    groups = (*muon.param_groups, *adam.param_groups)
    for group, rate in zip(groups, (0.012, 3e-3, 1.2e-3), strict=True):
        group["lr"] = rate * factor
