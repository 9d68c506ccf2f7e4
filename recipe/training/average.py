"""A running mean of the weights, which is what a run's end exports.

Batches are small, so that weights wander about what they have learned: their mean is better than any of
them, and the more so the higher the rate still is. A run from nothing leaves behind what it was, so that only
its last minutes count. One that goes on from a trained model hardly does but wander: there all count alike.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

HORIZON = 150  # steps that a mean goes back, roughly, whose older weights fade


class Average:
    """The mean of a model's weights since it began; a run that is resumed goes on with its own."""

    def __init__(self, model: nn.Module, saved: dict[str, Any] | None = None, *, fades: bool = True) -> None:
        self.steps = int(saved["steps"]) if saved else 0
        self.horizon = HORIZON if fades else None
        self.weights: dict[str, Tensor] = (
            saved["weights"] if saved else {name: p.detach().clone() for name, p in model.named_parameters()}
        )

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Takes in the weights as they are now: all count alike, or the older ones fade in the end."""
        self.steps += 1
        counted = min(self.steps, self.horizon or self.steps)
        now = [parameter.detach() for parameter in model.parameters()]
        torch._foreach_lerp_(list(self.weights.values()), now, 1 / counted)

    def restart(self) -> None:
        """Forgets what it has: the next weights are taken as they are."""
        self.steps = 0

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of it: nothing before it began."""
        return {"steps": self.steps, "weights": self.weights} if self.steps else None
