"""Where a step's time goes: the kernels of a few steps by name, as the device itself timed them.

In goes something to run, out come names with microseconds a run. Only for CUDA.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

RUNS = 3


def kernels_of(run: Callable[[], object], most: int = 14) -> dict[str, float]:
    """The longest first, then the rest as one, and their sum."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(RUNS):
            run()
        torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    for event in found.events() or ():
        if event.device_type.name == "CUDA":
            times[str(event.name)[:60]] += float(event.device_time) / RUNS
    ranked = sorted(times.items(), key=lambda each: -each[1])
    told = dict(ranked[:most])
    told["(others)"] = sum(time for _, time in ranked[most:])
    told["(sum)"] = sum(times.values())
    return {name: round(time, 1) for name, time in told.items()}
