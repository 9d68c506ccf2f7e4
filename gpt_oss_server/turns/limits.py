"""The limits that the operator's settings set for every turn, as far as they depend on the engine.

Takes the settings and the engine's facts. Returns the limits. It must not know requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.options import AUTO
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo

# Of a model that loops, where the operator chose no limit.
_OUTPUT = 16_384
_REPETITION = 256


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The limits of a turn that no request sets."""

    calls: int = 16  # in one generation
    repetition: int | None = None  # how many tokens one cycle of tokens may fill; None: any number


def turn_limits(info: EngineInfo, settings: Settings) -> TurnLimits:
    repetition = settings.repetition_limit
    if repetition == AUTO:
        repetition = _REPETITION if info.loops else None
    return TurnLimits(settings.max_parallel_calls, repetition)


def default_output_limit(info: EngineInfo, settings: Settings) -> int | None:
    """The output limit of a request that sets none; None is the rest of the context."""
    limit = settings.default_max_output_tokens
    if limit == AUTO:
        return _OUTPUT if info.loops else None
    return limit
