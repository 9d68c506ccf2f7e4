"""Which ops a device runs (kernels where Triton supports it, else plain PyTorch), and whether it still works.

Takes a device and returns a module. It imports Triton only for a device that runs kernels.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType

import torch

MIN_CAPABILITY = (8, 0)  # bf16 products and asynchronous copies
FP8_CAPABILITY = (8, 9)  # conversions from and to FP8


def runs_kernels(device: torch.device) -> bool:
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.cuda.get_device_capability(device) >= MIN_CAPABILITY
    )


def runs_fp8(device: torch.device) -> bool:
    """Whether kernels read FP8 numbers as they are stored."""
    return runs_kernels(device) and torch.cuda.get_device_capability(device) >= FP8_CAPABILITY


def ops_for(device: torch.device) -> ModuleType:
    """`reference`, or `fused`, which defines the ops of a step under the same names."""
    if runs_kernels(device):
        from inference.ops import fused

        return fused
    from inference.ops import reference

    return reference


def device_problem(device: torch.device) -> str | None:
    """After a failed step, on the engine's thread: a sentence if the device computes nothing any more. After
    some errors, a CUDA device fails at whatever it is given. None if it computes or is out of memory."""
    if device.type != "cuda":
        return None
    try:
        result = torch.ones(1, device=device).add_(1).item()
    except torch.cuda.OutOfMemoryError:
        return None
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return f"The device {device} computes nothing any more ({first}). Only a new process can use it."
    if result != 2:
        return f"The device {device} computes wrongly: 1 + 1 is {result:g} there."
    return None
