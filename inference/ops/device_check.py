"""Whether a device still computes: after some errors, a CUDA device fails at whatever it is given.

Takes a device and computes a number on it. Call it after a failed step only, and on the engine's thread.
"""

from __future__ import annotations

import torch

_COMPUTED = 2.0


def device_problem(device: torch.device) -> str | None:
    """A sentence if the device computes nothing any more; None if it does, or is merely out of memory."""
    if device.type != "cuda":
        return None
    try:
        found = torch.ones(1, device=device).add_(1).item()
    except torch.cuda.OutOfMemoryError:
        return None
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return f"The device {device} computes nothing any more ({first}). Only a new process can use it."
    if found != _COMPUTED:
        return f"The device {device} computes wrongly: 1 + 1 is {found:g} there."
    return None
