"""A running mean of the weights, which the end of a run exports.

Batches are small, so the weights wander around their optimum: their mean is better than any single state, and
the more so the higher the rate. A run from nothing moves away from its early weights, so only its last
minutes count. A run that continues a trained model mostly wanders, so all its weights count equally.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

HORIZON = 150  # roughly the number of steps in a mean whose older weights fade


class Average:
    """The mean of a model's weights since it began; a resumed run continues its own mean."""

    def __init__(self, model: nn.Module, saved: dict[str, Any] | None = None, *, fades: bool = True) -> None:
        self.steps = int(saved["steps"]) if saved else 0
        self.horizon = HORIZON if fades else None
        self.weights: dict[str, Tensor] = (
            saved["weights"] if saved else {name: p.detach().clone() for name, p in model.named_parameters()}
        )

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Adds the current weights. All count equally, unless older ones fade."""
        self.steps += 1
        counted = min(self.steps, self.horizon or self.steps)
        now = [parameter.detach() for parameter in model.parameters()]
        torch._foreach_lerp_(list(self.weights.values()), now, 1 / counted)

    def restart(self) -> None:
        """Drops the mean: the next weights replace it."""
        self.steps = 0

    def state(self) -> dict[str, Any] | None:
        """The state for a checkpoint; None before the mean has begun."""
        return {"steps": self.steps, "weights": self.weights} if self.steps else None
