"""The events of a turn, from which each API builds its stream.

They are the decoder's events, except slips, and four more: the score of a token, the start and end of a
built-in tool's run, and the end of the turn.
"""

from dataclasses import dataclass

from gpt_oss_server.harmony.events import Header, MessageFinished, MessageStarted, TextDelta
from inference.engine import Finish, TokenLogprob
from tools.tool import ToolOutput


@dataclass(frozen=True, slots=True)
class TokenScored:
    """The score of a sampled token of the open message's text. The token's text follows this event.

    Only where the sampling requests log-probabilities.
    """

    logprob: TokenLogprob


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call to a built-in tool is complete, and the tool is starting."""

    header: Header
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    header: Header
    output: ToolOutput


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The model stopped, or the turn reached a limit."""

    finish: Finish


TurnEvent = (
    MessageStarted | TextDelta | MessageFinished | TokenScored | ToolStarted | ToolFinished | TurnFinished
)
