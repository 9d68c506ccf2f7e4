"""One passage: messages up to a call or the end of the generation, decoded from the engine's steps.

Takes a step and the position to read from. Returns turn events and the position up to which it read. The
passage records messages, tokens and slips in the transcript. It calls no engine and runs no tool.
"""

from collections.abc import Sequence

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import CALL, FIRST_SPECIAL, START, Encoding
from gpt_oss_server.harmony.events import (
    ClosedBy,
    HarmonyEvent,
    MessageFinished,
    MessageStarted,
    Slip,
    SlipKind,
    TextDelta,
)
from gpt_oss_server.turns.events import TokenScored, TurnEvent
from gpt_oss_server.turns.plan import TurnPlan
from gpt_oss_server.turns.reasoning_budget import ReasoningBudget
from gpt_oss_server.turns.repetition import Asides
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import Step


class Passage:
    def __init__(self, plan: TurnPlan, transcript: Transcript, budget: ReasoningBudget | None) -> None:
        self.is_over = False  # it called a built-in tool, or repeats itself; tokens after that do not count
        self.repeats = False  # it writes the same message again and again
        self.calls_client = False  # one of its parallel calls goes to a tool of the client
        self.is_over_budget = False  # the reasoning must end here
        self.is_complete = False  # it ended with a call, and another passage may follow
        self._plan = plan
        self._transcript = transcript
        self._budget = budget
        self._decoder = Decoder(plan.encoding, plan.recipients)
        self._asides = Asides()
        self._last = CALL if plan.parallel else None  # the token that ends the passage

    def prefill(self, tokens: Sequence[int]) -> list[TurnEvent]:
        """Begin with tokens from the request, and return their events."""
        self._transcript.prefill(tokens)
        return self._decode(tokens)

    def read(self, step: Step, at: int) -> tuple[list[TurnEvent], int]:
        """Return the events of the step's tokens from `at` on, and the position of the first unread token."""
        tokens, scores = step.tokens[at:], None if step.logprobs is None else step.logprobs[at:]
        feed, budget, last = self._decoder.feed, self._budget, self._last
        events: list[TurnEvent] = []
        taken = 0
        for token in tokens:
            found, score = feed(token), None
            if scores is not None and token < FIRST_SPECIAL and self._decoder.in_text:
                score = TokenScored(scores[taken])
            taken += 1
            for event in found:
                if type(event) is TextDelta:  # by far the most frequent
                    if score is not None:
                        events.append(score)
                        score = None
                    events.append(event)
                    continue
                self._record(event, events)
                if self.is_over:
                    break
            if score is not None:
                events.append(score)
            if token == last or self.is_over or (budget is not None and self._exceeds(budget, token)):
                break
        self._transcript.sample(tokens[:taken], None if scores is None else scores[:taken])
        self.is_complete = token == last and not self.is_over
        return events, at + taken

    @property
    def in_answer(self) -> bool:
        return self._decoder.in_answer

    def end_reasoning(self, budget: ReasoningBudget, room: int | None) -> list[TurnEvent]:
        """End the reasoning on the model's behalf, with at most `room` tokens."""
        self.is_over_budget = False
        tokens = budget.closing()[:room]
        events = self._decode(tokens)
        self._transcript.sample(tokens)
        return events

    def close(self, *, stopped: bool = False) -> list[TurnEvent]:
        """Return the events that the decoder still holds, also after a failure, so that no text is lost.

        A truncated header is a slip only if the model `stopped` by itself.
        """
        events: list[TurnEvent] = []
        if not self.is_over:
            for event in self._decoder.close():
                if stopped or not (isinstance(event, Slip) and event.kind is SlipKind.CUT_HEADER):
                    self._record(event, events)
        return events

    def _decode(self, tokens: Sequence[int]) -> list[TurnEvent]:
        events: list[TurnEvent] = []
        for token in tokens:
            for event in self._decoder.feed(token):
                self._record(event, events)
        return events

    def _exceeds(self, budget: ReasoningBudget, token: int) -> bool:
        """Whether the reasoning must end after this token."""
        self.is_over_budget = budget.closes(token, self._decoder)
        return self.is_over_budget

    def _record(self, event: HarmonyEvent, events: list[TurnEvent]) -> None:
        if isinstance(event, Slip):
            self._transcript.slips.append(event)
            return
        if isinstance(event, MessageStarted | MessageFinished) and (warning := self._asides.repeats(event)):
            self._transcript.warnings.append(warning)
            self.is_over = self.repeats = True
            return
        if isinstance(event, MessageFinished):
            self._transcript.finish_message(event)
            if event.closed_by is not ClosedBy.TRUNCATED and event.header.recipient is not None:
                if self._plan.runs(event.header):
                    self.is_over = True
                elif self._plan.parallel:
                    self.calls_client = True
        events.append(event)


_ROLE = b"assistant"


class Between:
    """The tokens after a call, where the generation goes on: `<|start|>assistant`, or no passage.

    Anything else that the model writes there (a tool's result that it imagines) belongs to no message.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._started = False
        self._role = b""
        self.cannot_begin = False

    @property
    def begins_passage(self) -> bool:
        return self._role == _ROLE

    def take(self, token: int) -> None:
        if not self._started:
            self._started = token == START
            self.cannot_begin = not self._started
        elif 0 <= token < FIRST_SPECIAL:
            self._role += self._encoding.ordinary_bytes(token)
            self.cannot_begin = not _ROLE.startswith(self._role)
        else:
            self.cannot_begin = True
