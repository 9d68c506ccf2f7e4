"""A running mean of the weights, which is what a run's end exports.

Batches are small, so that weights wander about what they have learned: the mean of the last few minutes is
better than any of them, and the more so the higher the rate still is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

HORIZON = 150  # steps that the mean goes back, roughly


class Average:
    """The mean of a model's weights since it began; a run that is resumed goes on with its own."""

    def __init__(self, model: nn.Module, saved: dict[str, Any] | None = None) -> None:
        self.steps = int(saved["steps"]) if saved else 0
        self.weights: dict[str, Tensor] = (
            saved["weights"] if saved else {name: p.detach().clone() for name, p in model.named_parameters()}
        )

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Takes in the weights as they are now: at first all count alike, then the older ones fade."""
        self.steps += 1
        now = [parameter.detach() for parameter in model.parameters()]
        torch._foreach_lerp_(list(self.weights.values()), now, 1 / min(self.steps, HORIZON))

    def restart(self) -> None:
        """Forgets what it has: the next weights are taken as they are."""
        self.steps = 0

    def state(self) -> dict[str, Any] | None:
        """What a checkpoint keeps of it: nothing before it began."""
        return {"steps": self.steps, "weights": self.weights} if self.steps else None
