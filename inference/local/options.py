"""The operator's choices for a local model, and where they have an effect. Imports no framework by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inference.engine import CheckpointError
from inference.models.precision import Precision

if TYPE_CHECKING:
    import torch

MAX_WAITING = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """None leaves the choice to the machine."""

    max_concurrent: int | None = None  # requests that share a step
    max_waiting: int = MAX_WAITING  # requests that wait for a slot; more are refused
    kv_memory: int | None = None  # bytes for keys and values
    precision: Precision = field(default_factory=Precision)
    speculation: bool = False  # drafts from the text so far, checked by the model
    draft_head: str | None = None  # the folder of a head that drafts in place of that


def check_device(options: LocalOptions, device: torch.device) -> None:
    """Raises `CheckpointError` if an option has no effect on this device."""
    check_precision(options.precision, device)


def check_precision(precision: Precision, device: torch.device) -> None:
    """Raises `CheckpointError` if FP8 is requested where nothing would be gained by it."""
    from inference.ops.choice import runs_fp8

    if precision.flags and not runs_fp8(device):
        raise CheckpointError(
            f"{precision.flags} needs an NVIDIA GPU with FP8 (Ada, Hopper or later) and Triton; the model "
            f"would run on {device.type!r}, without gain. Omit it. `bench --compare bf16` measures its error "
            "on any device."
        )
