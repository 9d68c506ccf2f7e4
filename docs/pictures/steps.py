"""The picture of docs/scheduler.md: steps of the real scheduler, over a model that is only a memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field

from docs.pictures.svg import Canvas
from inference.engine import Sampling
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.scheduling.step import StepPart
from tests.doubles.inference.driven import Driven, MemoryRunner, Underway

_LEFT, _CELL, _ROW = 190, 38, 34
_LONG = list(range(300))

# when it arrives, its name, its prompt, how many tokens it samples
_ARRIVALS = (
    (0, "A", "a prompt of 20", [7] * 20, 15),
    (2, "B", "a prompt of 300", _LONG, 7),
    (3, "C", "a prompt of 30", [9] * 30, 6),
    (11, "D", "B's prompt and 40 more", [*_LONG, *[5] * 40], 3),
)


@dataclass
class _Recorded(MemoryRunner):
    """Notes how many tokens each slot has in each step, and where they begin."""

    steps: list[dict[int, tuple[int, int]]] = field(default_factory=list)

    def launch(self, parts: Listed[StepPart]) -> Underway:
        self.steps.append({part.slot: (part.start, len(part.tokens)) for part in parts})
        return super().launch(parts)


def steps() -> str:
    shares = asyncio.run(_shares())
    canvas = Canvas(
        820,
        "Fifteen steps of the engine",
        "Four sequences in rows, steps in columns. A reads its prompt and decodes a token in each step. B's "
        "long prompt is read in pieces meanwhile, C's short one whole. D finds B's prompt in the cache.",
        height=40 + _ROW * len(_ARRIVALS),
    )
    canvas.text(16, 22, "step", "p small quiet")
    for step in range(len(shares)):
        canvas.text(_LEFT + _CELL * step + 17, 22, str(step + 1), "p small quiet middle")
    for row, (_, name, about, _, _) in enumerate(_ARRIVALS):
        y = 32 + _ROW * row
        canvas.text(16, y + 17, name, "p strong")
        canvas.text(34, y + 17, about, "p small quiet")
        for step, found in enumerate(shares):
            if name in found:
                start, count, prompt = found[name]
                canvas.box(_LEFT + _CELL * step, y, _CELL - 4, 26, "user" if start < prompt else "final")
                canvas.text(_LEFT + _CELL * step + 17, y + 17, str(count), "p small middle")
    cached = min(found["D"][0] for found in shares if "D" in found)
    first = next(step for step, found in enumerate(shares) if "D" in found)
    canvas.text(
        _LEFT + _CELL * first - 8, 32 + _ROW * 3 + 17, f"{cached} tokens in the cache", "p small quiet end"
    )
    return canvas.drawn()


async def _shares() -> list[dict[str, tuple[int, int, int]]]:
    """For each step: the first position, the number of tokens and the prompt's length, by sequence."""
    runner = _Recorded((None,), 16)
    driven = Driven(runner, (None,), (100,), SchedulerLimits(max_concurrent=4, max_waiting=4))
    names = {number: arrival[1] for number, arrival in enumerate(_ARRIVALS, 1)}
    shares: list[dict[str, tuple[int, int, int]]] = []
    waiting = list(_ARRIVALS)
    while waiting or driven.loop.active:
        while waiting and waiting[0][0] <= len(shares):
            _, _, _, prompt, limit = waiting.pop(0)
            driven.request(prompt, limit, Sampling())
        before = len(runner.steps)
        running = {each.slot: each for each in driven.scheduler.running}
        driven.turn()
        running |= {each.slot: each for each in driven.scheduler.running}
        shares += [
            {
                names[running[slot].number]: (start, count, running[slot].prompt_length)
                for slot, (start, count) in step.items()
            }
            for step in runner.steps[before:]
        ]
    return shares
