"""One generation: the engine samples until the model stops, and the tokens become turn events.

Takes the plan of the turn and the transcript that the model continues. Returns batches of turn events,
usually one per step of the engine. A batch that ends with `ToolStarted` is a call to a built-in tool: the
caller runs the tool, then continues to read. The generation itself runs no tool. Closing the iterator stops
the engine.

A generation is one passage, or several where calls are parallel: then `<|call|>` does not stop the engine,
and `<|start|>assistant` after it begins the next passage. Anything else after a call is a tool result that
the model imagines, and ends the generation. So does a call that repeats an earlier one of the generation
(which is never shown), and the last call that the limit allows.

If the reasoning exceeds its budget, the generation stops the engine, closes the reasoning, and starts the
engine again.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from weakref import ref

from gpt_oss_server.harmony.encoding import CALL, END
from gpt_oss_server.harmony.events import MessageFinished
from gpt_oss_server.turns.events import ToolStarted, TurnEvent
from gpt_oss_server.turns.passage import Between, Passage
from gpt_oss_server.turns.plan import TurnPlan
from gpt_oss_server.turns.reasoning_budget import ReasoningBudget
from gpt_oss_server.turns.repetition import CallsMade, Cycles, TurnWarning, WarningKind, written_so_far
from gpt_oss_server.turns.stops import without_own_stop
from gpt_oss_server.turns.transcript import Transcript
from gpt_oss_server.turns.watch import with_trace
from inference.engine import Finish, Sampling, Step
from inference.grammar import Grammar


class Generation:
    """Iterate over `events()` once; afterwards `finish` tells how the model stopped."""

    def __init__(
        self,
        plan: TurnPlan,
        transcript: Transcript,
        budget: ReasoningBudget | None,
        *,
        after_call: bool = False,
    ) -> None:
        self.finish = Finish.STOP
        self.calls_client = False  # one of its parallel calls goes to a tool of the client
        self.stopped_by: int | None = None  # a stop id of the request's own
        self._plan = plan
        self._transcript = transcript
        self._budget = budget
        self._after_call = after_call  # the turn already contains a call
        self._passage = Passage(plan, transcript, budget)
        self._between: Between | None = None  # after a passage, until the next one begins
        self._calls = CallsMade()
        # A request that ignores the model's own end wants its length, whatever the text.
        limit = None if plan.sampling.ignored_stop_ids else plan.limits.repetition
        self._cycles: Cycles | None = None
        if limit is not None:
            self._cycles = Cycles(
                limit, written_so_far(transcript.prompt_so_far(plan.renderer.cue), plan.encoding)
            )
        self._is_cut = False  # the engine's further tokens do not belong to this generation

    def prefill(self, tokens: Sequence[int]) -> list[TurnEvent]:
        """Begin with tokens from the request, and return their events."""
        return self._passage.prefill(tokens)

    async def events(self) -> AsyncGenerator[list[TurnEvent], None]:
        transcript = self._transcript
        with transcript.generating() as span:
            read, clock = span.reads.append, transcript.clock
            while True:
                self._is_cut, is_first = False, True
                prompt = transcript.prompt_so_far(self._plan.renderer.cue)
                sampling = self._sampling(len(prompt), span.trace)
                async with aclosing(self._plan.engine.generate(prompt, sampling)) as steps:
                    async for step in steps:
                        read(clock())
                        if is_first:
                            is_first = False
                            transcript.first_step(step, len(prompt))
                        transcript.accepted += step.accepted
                        transcript.rejected += step.rejected
                        step, own_stop = without_own_stop(step, self._plan.hidden_stops)
                        at = 0
                        while at < len(step.tokens) and not self._is_cut:
                            events, at = self._read(step, at)
                            if events:
                                yield events
                            if self._passage.is_complete and self._between is None:
                                self._between = Between(self._plan.encoding)
                                for events in self._end_passage():
                                    yield events
                        if self._is_cut or self._repeats(step):
                            break
                        self.finish = step.finish or self.finish
                        if own_stop is not None:
                            self.stopped_by = own_stop
                            transcript.pass_over(own_stop)
                if not self._passage.is_over_budget:
                    break
                if events := self._end_reasoning():
                    yield events
                if not self.has_room():
                    self.finish = Finish.LENGTH
                    break
        if self._between is not None:
            self.finish = Finish.STOP  # even at the limit: every message is complete
            return
        for events in self._end_passage():
            yield events

    def close(self) -> list[TurnEvent]:
        """Return the events that are still held back, after a failure or an early end."""
        return [*self._calls.feed(self._passage.close()), *self._calls.release()]

    def has_room(self) -> bool:
        """Whether the turn's limit and the context leave room for another token."""
        plan, transcript = self._plan, self._transcript
        limit, length = plan.sampling.max_tokens, len(transcript.prompt) + len(transcript.tokens)
        return length < plan.engine.info.context_length and (limit is None or transcript.sampled < limit)

    def _read(self, step: Step, at: int) -> tuple[list[TurnEvent], int]:
        if self._between is not None:
            self._read_between(self._between, step.tokens[at])
            return [], at + 1
        passage = self._passage
        events, at = passage.read(step, at)
        self._is_cut = passage.is_over or passage.is_over_budget
        if passage.repeats:
            self.finish = Finish.LENGTH
        return self._calls.feed(events) if self._calls else events, at

    def _repeats(self, step: Step) -> bool:
        """Whether the generation must end after this step, because it repeats a cycle of tokens."""
        if self._cycles is None or (warning := self._cycles.feed(step.tokens)) is None or step.finish:
            return False
        if self._transcript.sampled < self._plan.sampling.min_tokens:
            return False
        self._transcript.warnings.append(warning)
        self.finish = Finish.LENGTH
        return True

    def _read_between(self, between: Between, token: int) -> None:
        self._transcript.pass_over(token)
        between.take(token)
        self._is_cut = between.cannot_begin
        if between.begins_passage:
            self._passage = Passage(self._plan, self._transcript, self._budget)
            self._between = None

    def _end_passage(self) -> Iterator[list[TurnEvent]]:
        """Yield the rest of the passage, and the start of the built-in tool that it called, if any."""
        closing = self._passage.close(stopped=self.finish is Finish.STOP)
        events = self._calls.feed(closing)
        if self._passage.is_complete and (ended := [e for e in closing if isinstance(e, MessageFinished)]):
            self._count_call(ended[-1])
        if events := [*events, *self._calls.release()]:
            yield events  # before the passage becomes segments: the caller may need its tokens
        self.calls_client |= self._passage.calls_client
        last = self._transcript.end_generation(self._plan.renderer)
        # A call that a limit cut off is incomplete.
        if last is not None and self.finish is not Finish.LENGTH and self._plan.runs(last.header):
            yield [ToolStarted(last.header, last.text)]

    def _count_call(self, call: MessageFinished) -> None:
        """End the generation if the call, which ended the passage, repeats another or is the last allowed."""
        recipient, most = call.header.recipient, self._plan.limits.calls
        if recipient is None:
            return
        if self._calls.repeats(call):
            self._transcript.messages.pop()  # its tokens count, but belong to no message
            self._end_at_call(WarningKind.REPEATED_CALL, f"The model repeated its call of '{recipient}'")
            return
        self._calls.add(call)
        if len(self._calls) >= most:
            self._end_at_call(
                WarningKind.TOO_MANY_CALLS, f"The model made {most} calls (--max-parallel-calls)"
            )

    def _end_at_call(self, kind: WarningKind, what: str) -> None:
        self._is_cut = True
        self._transcript.warnings.append(TurnWarning(kind, f"{what}, so the generation was ended."))

    def _end_reasoning(self) -> list[TurnEvent]:
        assert self._budget is not None
        limit = self._plan.sampling.max_tokens
        room = None if limit is None else limit - self._transcript.sampled
        return self._passage.end_reasoning(self._budget, room)

    def _grammar(self) -> Grammar | None:
        if self._transcript.prefilled and not self._transcript.sampled:
            return self._plan.binding.begun
        reasons = self._budget is None or not self._budget.spent
        return self._plan.binding.at(called=self._after_call, reasons=reasons)

    def _sampling(self, prompt: int, trace: str) -> Sampling:
        """The plan's sampling, limited to the tokens that the turn's earlier generations have left."""
        plan, sampled = self._plan, self._transcript.sampled
        sampling = with_trace(plan.sampling, trace)
        if plan.parallel:
            sampling = replace(sampling, stop_token_ids=sampling.stop_token_ids - {CALL})
        # Nothing follows an answer, even if the model ends it as an ordinary message.
        if self._passage.in_answer:
            sampling = replace(sampling, stop_token_ids=sampling.stop_token_ids | {END})
        grammar = self._grammar()
        if grammar is not None:
            sampling = replace(sampling, grammar=grammar)
            if plan.engine.info.enforces_grammar:
                self._transcript.grammars[len(self._transcript.tokens)] = ref(grammar)
        if sampling.max_tokens is None or not sampled:
            return sampling
        room = plan.engine.info.context_length - prompt
        most, least = min(sampling.max_tokens - sampled, room), max(sampling.min_tokens - sampled, 0)
        return replace(sampling, max_tokens=most, min_tokens=least)
