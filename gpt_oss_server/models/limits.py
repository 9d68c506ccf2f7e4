"""The limits that the settings and the model's own facts set for turns, whatever a request sets."""

from dataclasses import dataclass

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.settings import Settings
from gpt_oss_server.settings.options import AUTO
from inference.engine import EngineInfo

# For a model that loops, where the operator chose no limit.
_OUTPUT = 16_384
_REPETITION = 256
_WORD = "Hi"
_DATE = "2026-01-01"  # every date takes as many tokens


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
        return info.defaults.max_tokens or (_OUTPUT if info.loops else None)
    return limit


def least_context(settings: Settings) -> int:
    """The shortest context for a conversation: question, reasoning and answer of one word each."""
    renderer = Renderer(load_encoding())
    conversation = (
        renderer.system(effort="medium", date=_DATE, identity=settings.identity),
        renderer.user(_WORD),
        renderer.reasoning(_WORD),
        renderer.answer(_WORD),
    )
    return sum(len(segment.tokens) for segment in conversation)
