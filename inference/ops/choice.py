"""Which ops a device runs: kernels on a GPU that Triton knows, plain PyTorch everywhere else.

In goes a device, out comes a module. It imports Triton only where it is wanted.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

import torch

LEAST_CAPABILITY = (8, 0)  # bf16 products and asynchronous copies


def runs_kernels(device: torch.device) -> bool:
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= LEAST_CAPABILITY
    )


def ops_for(device: torch.device) -> ModuleType:
    """`reference`, or `fused`, which has the ops of a step under the same names."""
    if runs_kernels(device):
        from inference.ops import fused

        return fused
    from inference.ops import reference

    return reference


def sampling_for(device: torch.device) -> ModuleType:
    """`sampling`, or `fused_sampling`."""
    if runs_kernels(device):
        from inference.ops import fused_sampling

        return fused_sampling
    from inference.ops import sampling

    return sampling
