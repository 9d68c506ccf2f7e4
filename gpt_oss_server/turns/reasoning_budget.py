"""How much a turn may reason, in tokens: where its reasoning must end, and the tokens that end it.

In: each token that was sampled, and the decoder that has read it. Out: whether the reasoning must be closed
now, and what is then put into the model's mouth. It knows no engine: the turn stops one generation there and
begins the next behind these tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import CHANNEL, END, FIRST_SPECIAL, MESSAGE, Encoding

_MOST_CLOSINGS = 2  # between two calls


class ReasoningBudget:
    """Of one turn. Headers and ends of reasoning cost nothing, nor does what is said to anyone else."""

    def __init__(self, tokens: int, encoding: Encoding, cue: Sequence[int]) -> None:
        self._left = tokens
        self._next = (END, *cue)
        self._answer = (CHANNEL, *encoding.encode("final"), MESSAGE)
        self._times_closed = 0

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def closes(self, token: int, decoder: Decoder) -> bool:
        """Whether the reasoning must end behind this token. A character that is half said is said first."""
        if not decoder.in_reasoning or self._times_closed == _MOST_CLOSINGS:
            return False
        if token < FIRST_SPECIAL:
            self._left -= 1
        return self._left <= 0 and not decoder.in_character

    def begin_again(self) -> None:
        """A tool has answered: what was closed before is no longer the model's last word."""
        self._times_closed = 0

    def closing(self) -> tuple[int, ...]:
        """The end of the reasoning and the beginning of another message.

        A model that is not held to a grammar may reason again; the second time the message is an answer. Who
        reasons even then is let: it would never end.
        """
        self._times_closed += 1
        return self._next if self._times_closed == 1 else (*self._next, *self._answer)
