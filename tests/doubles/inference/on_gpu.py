"""Engines that run as on a GPU, on a machine without one."""

from typing import Any

import pytest

from inference.local import engine as engines
from inference.local.cuda.recordings import Recordings
from inference.local.cuda.runner import CudaRunner


def run_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, *, padded: bool) -> None:
    """Makes `engine` run steps as on a GPU, but without recording any; `padded` pads them as recorded ones
    are."""
    limits = engines.SchedulerLimits

    def limits_on_gpu(**given: Any) -> engines.SchedulerLimits:
        return limits(**given, ahead=0 if given["drafts"] else 1)

    def runner(model: Any, plan: Any, limits: Any, progress: Any, head: Any) -> CudaRunner:
        found = CudaRunner(
            model, plan.blocks, limits.max_concurrent, plan.block_size,
            drafts=limits.drafts, head=head, graphs=padded,
        )  # fmt: skip
        assert found.ahead == limits.ahead
        return found

    monkeypatch.setattr(engines, "SchedulerLimits", limits_on_gpu)
    monkeypatch.setattr(engines, "_runner", runner)
    if padded:
        monkeypatch.setattr(Recordings, "replay", lambda self, numbers, shape: self._compute(numbers, shape))
