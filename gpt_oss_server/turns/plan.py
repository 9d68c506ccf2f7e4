"""The plan of a turn: all decisions made before its first token."""

from dataclasses import dataclass, field
from typing import Protocol

from gpt_oss_server.constraints.binding import Binding
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import Header
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.models.limits import TurnLimits
from inference.engine import Engine, Sampling
from tools.tool import ToolOutput


class TurnTools(Protocol):
    """The built-in tools of one request, in its conversation."""

    def runs(self, recipient: str) -> bool: ...

    async def run(self, recipient: str, arguments: str) -> ToolOutput: ...


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
