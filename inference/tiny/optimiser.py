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


# Full rates. The maps of codes turn all rows at once, so theirs is small. A learned row moves only when its
# token occurs, and has to be heard beside codes that are ten times as loud: with the rest's rate it never is.
_RATES = {"matrices": 0.012, "rest": 3e-3, "maps": 1.2e-3, "learned_in": 1e-1, "learned_out": 8e-3}


def _group_of(name: str) -> str:
    if name.startswith("map_"):
        return "maps"
    if name in _RATES:
        return name
    inside = name.startswith("layers.") and name.endswith("proj")
    return "matrices" if inside or name.endswith("proj.weight") else "rest"


def optimisers(model: nn.Module) -> tuple[Muon, torch.optim.AdamW]:
    groups: dict[str, list[nn.Parameter]] = {name: [] for name in _RATES}
    for name, parameter in model.named_parameters():
        groups[_group_of(name)].append(parameter)
    muon = Muon(groups.pop("matrices"), lr=0.0)
    adam = [{"params": parameters} for parameters in groups.values()]
    return muon, torch.optim.AdamW(adam, betas=(0.9, 0.98), weight_decay=0.0)


def set_rates(both: tuple[Muon, torch.optim.AdamW], factor: float) -> None:
    """The full rates, times `factor`."""
    muon, adam = both
    groups = (*muon.param_groups, *adam.param_groups)
    for group, rate in zip(groups, _RATES.values(), strict=True):
        group["lr"] = rate * factor
