"""What happened in one turn, as it happened: append-only tokens, and the messages found in them.

In: the prompt, then what each generation sampled and what tools answered in between. Out: the prompt of the
next generation, counts for usage, text for debugging, and the turn's segments for the conversation's history.
It knows neither items nor HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpt_oss_server.harmony.events import MessageFinished, Slip
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer


@dataclass(slots=True)
class Transcript:
    prompt: Sequence[int]  # ends with the cue, <|start|>assistant
    tokens: list[int] = field(default_factory=list)  # all that follows it: sampled, and given by tools
    segments: list[Segment] = field(default_factory=list)  # the same as whole messages
    slips: list[Slip] = field(default_factory=list)
    sampled: int = 0  # stop tokens included
    reasoning_tokens: int = 0  # of reasoning messages, their headers and ends included
    given: int = 0  # by tools: input, not output
    cached_tokens: int = 0
    prefilled: int = 0  # put into the model's mouth before it began: input as well
    _generation: list[int] = field(default_factory=list)  # sampled since the last `end_generation`
    _messages: list[MessageFinished] = field(default_factory=list)

    def prefill(self, tokens: Sequence[int]) -> None:
        """The answer's beginning, given rather than sampled. Only before anything else."""
        self._generation += tokens
        self.tokens += tokens
        self.prefilled = len(tokens)

    def sample(self, tokens: Sequence[int]) -> None:
        self._generation += tokens
        self.tokens += tokens
        self.sampled += len(tokens)

    def finish_message(self, message: MessageFinished) -> None:
        self._messages.append(message)
        if message.header.channel == "analysis" and message.header.recipient is None:
            first = message.start if self.segments else max(message.start, self.prefilled)
            self.reasoning_tokens += max(message.end - first, 0)

    def spoken(self, message: MessageFinished, renderer: Renderer) -> Segment:
        """A message of the generation under way, as it will stand in the conversation's history."""
        [segment] = renderer.from_completion(self._generation, [message])
        return segment

    def end_generation(self, renderer: Renderer) -> MessageFinished | None:
        """The generation's messages become segments; its last message, if it made any."""
        self.segments += renderer.from_completion(self._generation, self._messages)
        last = self._messages[-1] if self._messages else None
        self._generation, self._messages = [], []
        return last

    def pass_over(self, token: int) -> None:
        """Sampled between passages: it belongs to no message."""
        self.tokens.append(token)
        self.sampled += 1

    def give(self, answers: Sequence[Segment], cue: Sequence[int]) -> None:
        """What tools answered, and the cue where the model is asked to go on after that."""
        if not answers:
            return
        self.segments += answers
        given = [token for answer in answers for token in answer.tokens] + list(cue)
        self.tokens += given
        self.given += len(given)

    def prompt_so_far(self, cue: Sequence[int]) -> list[int]:
        """What the next generation is given: the very ids so far. Segments begin with the cue themselves."""
        if not self.segments:
            return [*self.prompt, *self._generation]
        said = [token for segment in self.segments for token in segment.tokens]
        return [*self.prompt[: len(self.prompt) - len(cue)], *said, *cue, *self._generation]
