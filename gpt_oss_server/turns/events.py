"""The events of a turn: what an API's stream is made from.

The decoder's events, except slips, and four more: scores of tokens, the start and end of a built-in tool's
run, and the end of the turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.harmony.events import Header, MessageFinished, MessageStarted, TextDelta
from inference.engine import Finish, TokenLogprob
from tools.tool import ToolOutput


@dataclass(frozen=True, slots=True)
class TokenScored:
    """A token of the open message's text was sampled, and how likely it was; its text comes after this.

    Only where the sampling requests log-probabilities.
    """

    logprob: TokenLogprob


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call to a built-in tool is complete, and the tool runs now."""

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
