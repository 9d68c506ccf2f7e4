"""The plan of a turn: all decisions made before its first token, and the limits that settings set for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from gpt_oss_server.constraints.binding import Binding
from gpt_oss_server.harmony.decoder import Recipients
from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.settings import Settings
from gpt_oss_server.settings.options import AUTO
from inference.engine import Engine, EngineInfo, Sampling
from tools.tool import ToolOutput

# Of a model that loops, where the operator chose no limit.
_OUTPUT = 16_384
_REPETITION = 256
_WORD = "Hi"
_DATE = "2026-01-01"  # every date takes as many tokens


class TurnTools(Protocol):
    """The built-in tools of one request, in its conversation."""

    def runs(self, recipient: str) -> bool: ...

    async def run(self, recipient: str, arguments: str) -> ToolOutput: ...


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """The limits of a turn that no request sets."""

    calls: int = 16  # in one generation
    repetition: int | None = None  # how many tokens one cycle of tokens may fill; None: any number


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    engine: Engine
    encoding: Encoding
    renderer: Renderer
    sampling: Sampling
    recipients: Recipients = field(default_factory=Recipients)
    tools: TurnTools | None = None
    # Calls that the user approved, as (recipient, arguments). The turn begins with them.
    approved: tuple[tuple[str, str], ...] = ()
    binding: Binding = field(default_factory=Binding)
    reasoning_budget: int | None = None  # in tokens; None: no limit
    parallel: bool = False  # a generation may make several calls
    hidden_stops: frozenset[int] = frozenset()  # stop ids that are text, which the answer leaves out
    limits: TurnLimits = field(default_factory=TurnLimits)

    def runs(self, header: Header) -> bool:
        """Whether a message with this header is a call to a built-in tool."""
        return header.recipient is not None and self.tools is not None and self.tools.runs(header.recipient)


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
