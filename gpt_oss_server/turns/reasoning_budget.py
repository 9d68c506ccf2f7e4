"""How much a turn may reason, in tokens: where its reasoning must end, and the tokens that end it.

In: each sampled token, and the decoder that has read it. Out: whether the reasoning must end now, and the
tokens that then end it in the model's place. It knows no engine: the generation stops the engine there, and
asks it again after these tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import CHANNEL, END, FIRST_SPECIAL, MESSAGE, Encoding

_MOST_CLOSINGS = 2  # between two calls


class ReasoningBudget:
    """The budget of one turn. Headers and ends of reasoning cost nothing, nor do messages to others."""

    def __init__(self, tokens: int, encoding: Encoding, cue: Sequence[int]) -> None:
        self._left = tokens
        self._next = (END, *cue)
        self._answer = (CHANNEL, *encoding.encode("final"), MESSAGE)
        self._times_closed = 0

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def closes(self, token: int, decoder: Decoder) -> bool:
        """Whether the reasoning must end after this token. A split character is completed first."""
        if not decoder.in_reasoning or self._times_closed == _MOST_CLOSINGS:
            return False
        if token < FIRST_SPECIAL:
            self._left -= 1
        return self._left <= 0 and not decoder.in_character

    def begin_again(self) -> None:
        """A tool has returned a result, so the model may reason again."""
        self._times_closed = 0

    def closing(self) -> tuple[int, ...]:
        """The tokens that end the reasoning and begin another message.

        A model without a grammar may reason again; the second time, the message is an answer. Reasoning after
        that is not ended, or the turn might never end.
        """
        self._times_closed += 1
        return self._next if self._times_closed == 1 else (*self._next, *self._answer)
