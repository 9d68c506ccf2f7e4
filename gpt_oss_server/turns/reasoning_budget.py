"""The budget of a turn's reasoning in tokens: where the reasoning must end, and the tokens that end it.

Takes each sampled token and the decoder that has read it. Returns whether the reasoning must end now, and the
tokens that end it on the model's behalf. It must not know the engine: the generation stops the engine and
starts it again after these tokens.
"""

from collections.abc import Sequence

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import CHANNEL, END, FIRST_SPECIAL, MESSAGE, Encoding

_MOST_CLOSINGS = 2  # between two calls


class ReasoningBudget:
    """The budget of one turn. Headers and ends of reasoning are free, and so is all that is not reasoning."""

    def __init__(self, tokens: int, encoding: Encoding, cue: Sequence[int]) -> None:
        self._left = tokens
        self._next = (END, *cue)
        self._answer = (CHANNEL, *encoding.encode("final"), MESSAGE)
        self._times_closed = 0

    @property
    def spent(self) -> bool:
        return self._left <= 0

    def closes(self, token: int, decoder: Decoder) -> bool:
        """Whether the reasoning must end after this token. It never ends within a character."""
        if not decoder.in_reasoning or self._times_closed == _MOST_CLOSINGS:
            return False
        if token < FIRST_SPECIAL:
            self._left -= 1
        return self._left <= 0 and not decoder.in_character

    def begin_again(self) -> None:
        """Allow the model to reason again, as a tool has returned a result."""
        self._times_closed = 0

    def closing(self) -> tuple[int, ...]:
        """Return the tokens that end the reasoning and begin another message.

        A model without a grammar may reason again. The second time, the new message is an answer. The budget
        does not end further reasoning, or the turn might never end.
        """
        self._times_closed += 1
        return self._next if self._times_closed == 1 else (*self._next, *self._answer)
