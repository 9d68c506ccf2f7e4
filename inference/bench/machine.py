"""Describes this machine and measures its limits: the bandwidth of a copy and the rate of a matrix product.

A fraction of the roofline is meaningful only with the roofline of the same run.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util

import torch

REPEATS = 5


@dataclass(frozen=True, slots=True)
class Machine:
    device: str
    torch: str
    triton: str
    python: str
    copy_bytes_per_s: float  # read and written
    product_flops_per_s: float


def measure_machine(device: torch.device) -> Machine:
    return Machine(
        device=device_name(device),
        torch=torch.__version__,
        triton=metadata.version("triton") if util.find_spec("triton") else "none",
        python=platform.python_version(),
        copy_bytes_per_s=_copy(device),
        product_flops_per_s=_product(device),
    )


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpus} CPUs ({platform.machine()}), {torch.get_num_threads()} threads"


def settle(device: torch.device) -> None:
    """Waits until the device has finished every launch."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(device: torch.device, run: Callable[[], object], inner: int = 1) -> float:
    """The median time of one run over REPEATS repeats of `inner` runs, after two uncounted repeats."""
    times = []
    for repeat in range(REPEATS + 2):
        settle(device)
        start = time.perf_counter()
        for _ in range(inner):
            run()
        settle(device)
        if repeat >= 2:
            times.append((time.perf_counter() - start) / inner)
    return statistics.median(times)


def _copy(device: torch.device) -> float:
    size = 2 << 30 if device.type == "cuda" else 64 << 20
    source = torch.empty(size // 4, device=device).normal_()
    target = torch.empty_like(source)
    return 2 * size / seconds(device, lambda: target.copy_(source), 4)


def _product(device: torch.device) -> float:
    """Multiplies in the model's number type, on random numbers, which draw more power than zeros."""
    size, dtype = (8192, torch.bfloat16) if device.type == "cuda" else (512, torch.float32)
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / seconds(device, lambda: torch.mm(left, right), 4)
