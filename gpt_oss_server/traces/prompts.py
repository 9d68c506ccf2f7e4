"""A prompt as a trace keeps it: what the stored history of its response does not hold already.

So a turn's trace is as long as the turn, whatever the conversation's length.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from gpt_oss_server.harmony.history import Segment, last_answer, split_leading_instructions


@dataclass(frozen=True, slots=True)
class TracedPrompt:
    before: Sequence[int]  # the head, or the whole prompt
    after: Sequence[int] = ()
    first: int = 0  # where the history begins between them: the head contains earlier instructions
    end: int = 0  # where it ends: the turn's own segments follow
    reasoning_from: int = 0  # the model does not see the reasoning before this place

    @property
    def needs_history(self) -> bool:
        return self.end > self.first

    @property
    def kept_tokens(self) -> int:
        return len(self.before) + len(self.after)

    def tokens(self, history: Sequence[Segment]) -> list[int]:
        """The prompt. `history` ends with the response itself; it may be empty for a whole prompt."""
        return [*self.before, *_shown(history, self.first, self.end, self.reasoning_from), *self.after]


def traced(prompt: Sequence[int], history: Sequence[Segment] = (), cue: int = 0) -> TracedPrompt:
    """The prompt, which ends in a cue of `cue` tokens, without what `history` holds; else whole."""
    first, end = len(history) - len(split_leading_instructions(history)[1]), len(history)
    for reasoning_from in dict.fromkeys((last_answer(history) + 1, 0)):
        shown = _shown(history, first, end, reasoning_from)
        at = len(prompt) - cue - len(shown)
        if shown and at >= 0 and list(prompt[at : at + len(shown)]) == shown:
            after = array("I", prompt[len(prompt) - cue :])
            return TracedPrompt(array("I", prompt[:at]), after, first, end, reasoning_from)
    return TracedPrompt(array("I", prompt))


def _shown(history: Sequence[Segment], first: int, end: int, reasoning_from: int) -> list[int]:
    tokens: list[int] = []
    for place in range(first, end):
        if place >= reasoning_from or not history[place].is_reasoning:
            tokens += history[place].tokens
    return tokens
