"""The usage of a run: its tokens, as metrics, limits and the log count them.

Takes transcripts. Returns a `Usage`, which each API's answers spell in their own words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpt_oss_server.turns.transcript import Transcript


@dataclass(frozen=True, slots=True)
class Usage:
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0
    results: int = 0  # of tools that ran here; part of the input
    accepted: int = 0  # tokens of the request's prediction that were tried and right,
    rejected: int = 0  # or wrong

    @property
    def total(self) -> int:
        return self.input + self.output

    @property
    def predicted(self) -> dict[str, int]:
        """As answers show it, whose request has a prediction that the engine tried."""
        shown = {"accepted_prediction_tokens": self.accepted, "rejected_prediction_tokens": self.rejected}
        return shown if self.accepted or self.rejected else {}


def usage_of_turns(turns: Sequence[Transcript]) -> Usage:
    """The usage of turns that follow each other: each has a prompt of its own."""
    return Usage(
        input=sum(len(turn.prompt) + turn.prefilled + turn.given for turn in turns if not turn.unread),
        cached=sum(turn.cached_tokens for turn in turns),
        **_sums(turns),
    )


def usage_of_choices(turns: Sequence[Transcript]) -> Usage:
    """The usage of turns that begin with the same prompt, which counts once.

    It counts as cached if no turn computed it: of those that start together, one computes it for all.
    """
    first = turns[0]
    return Usage(
        input=len(first.prompt) + first.prefilled + sum(turn.given for turn in turns),
        cached=min(turn.cached_tokens for turn in turns),
        **_sums(turns),
    )


def _sums(turns: Sequence[Transcript]) -> dict[str, int]:
    return {
        "output": sum(turn.sampled for turn in turns),
        "reasoning": sum(turn.reasoning_tokens for turn in turns),
        "results": sum(turn.results for turn in turns),
        "accepted": sum(turn.accepted for turn in turns),
        "rejected": sum(turn.rejected for turn in turns),
    }
