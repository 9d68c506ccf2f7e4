"""Profiles the kernels of a few steps by name, as timed by the device.

Takes a function and returns kernel names with microseconds per run. It supports only CUDA.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

RUNS = 3


def kernels_of(run: Callable[[], object], most: int = 14) -> dict[str, float]:
    """The slowest kernels first, then the rest as one entry, and the sum."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    for event in profiler.events() or ():
        if event.device_type.name == "CUDA":
            times[str(event.name)[:60]] += float(event.device_time) / RUNS
    ranked = sorted(times.items(), key=lambda each: -each[1])
    reported = dict(ranked[:most])
    reported["(others)"] = sum(time for _, time in ranked[most:])
    reported["(sum)"] = sum(times.values())
    return {name: round(time, 1) for name, time in reported.items()}
