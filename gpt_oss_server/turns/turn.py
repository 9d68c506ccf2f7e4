"""One turn of the model: generate, decode, run tools of ours, go on, and tell what happened as it happens.

In: an engine, a prompt and how to sample, and the tools that run here. Out: batches of turn events, one batch
per engine step, and at the end one `TurnFinished`. This is the one place where tools loop in; both APIs see
the same events. It knows nothing of items, ids or HTTP. Closing the iterator stops generation and tool.

A generation is one passage, or several where calls are parallel: then `<|call|>` does not stop the engine,
and `<|start|>assistant` after it begins the next passage. Anything else there is the model imagining the
tool's answer, and ends the generation. Tools of ours run at the end of their passage, one after the other,
while the engine goes on; all their answers come behind the generation, before the next.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

from gpt_oss_server.constraints.binding import Binding
from gpt_oss_server.harmony.decoder import Decoder, Recipients
from gpt_oss_server.harmony.encoding import CALL, FIRST_SPECIAL, Encoding
from gpt_oss_server.harmony.events import (
    ClosedBy,
    HarmonyEvent,
    Header,
    MessageFinished,
    MessageStarted,
    Slip,
    SlipKind,
    TextDelta,
)
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.turns.between import Between
from gpt_oss_server.turns.reasoning_budget import ReasoningBudget
from gpt_oss_server.turns.transcript import Transcript
from inference.engine import Engine, Finish, Sampling, Step, TokenLogprob
from tools.tool import ToolOutput


@dataclass(frozen=True, slots=True)
class TokenScored:
    """A token of the open message's text was sampled, and how likely it was; its text comes after this.

    Only where the sampling asks for log-probabilities.
    """

    logprob: TokenLogprob


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call to one of our tools is complete and runs now."""

    header: Header
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    header: Header
    output: ToolOutput


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The model has stopped: by itself, or because a limit was reached."""

    finish: Finish


TurnEvent = (
    MessageStarted | TextDelta | MessageFinished | TokenScored | ToolStarted | ToolFinished | TurnFinished
)


class TurnTools(Protocol):
    """The tools that run here, for this request and in this conversation."""

    def runs(self, recipient: str) -> bool: ...

    async def run(self, recipient: str, arguments: str) -> ToolOutput: ...


class Turn:
    """Iterate once over `events()`. After a failure, `close` tells what was still open."""

    def __init__(
        self,
        engine: Engine,
        encoding: Encoding,
        renderer: Renderer,
        recipients: Recipients,
        transcript: Transcript,
        sampling: Sampling,
        tools: TurnTools | None = None,
        approved: Sequence[tuple[str, str]] = (),
        binding: Binding | None = None,
        reasoning: int | None = None,
        *,
        parallel: bool = False,
    ) -> None:
        self.transcript = transcript
        self._engine = engine
        self._encoding = encoding
        self._renderer = renderer
        self._recipients = recipients
        self._parallel = parallel
        stops = sampling.stop_token_ids - {CALL} if parallel else sampling.stop_token_ids
        self._sampling = replace(sampling, stop_token_ids=stops)
        self._tools = tools
        self._approved = approved  # (recipient, arguments) of calls that are made before anything is said
        self._binding = binding or Binding()
        # How many tokens the model may reason; None: as it likes.
        self._budget: ReasoningBudget | None = None
        if reasoning is not None and not engine.info.replays:
            self._budget = ReasoningBudget(reasoning, encoding, renderer.cue)
        self._over = False  # the generation under way has come to the end of that budget
        self._finish = Finish.STOP
        self._has_called = False
        self.has_begun = False  # a call that was approved may have been made
        self._decoder = Decoder(encoding, recipients)
        self._call: MessageFinished | None = None  # to one of our tools, in the passage under way
        self._between: Between | None = None  # passages
        self._answers: list[Segment] = []  # of the tools that ran in the generation under way
        self._asked = False  # it has called a tool of the client's

    def prefill(self, tokens: Sequence[int]) -> list[TurnEvent]:
        """Words put into the model's mouth before anything is sampled, and what they are as events."""
        self.transcript.prefill(tokens)
        events: list[TurnEvent] = []
        for token in tokens:
            for event in self._decoder.feed(token):
                self._record(event, events)
        return events

    async def events(self) -> AsyncGenerator[list[TurnEvent], None]:
        self.has_begun = True
        for recipient, arguments in self._approved:
            header = Header("commentary", recipient, "json")
            yield [MessageStarted(header), *([TextDelta(arguments)] if arguments else [])]
            yield [ToolStarted(header, arguments)]
            yield [ToolFinished(header, await self._run(header, arguments))]
            self._has_called = True
        self.transcript.give(self._answers, self._renderer.cue)
        self._answers = []
        while True:
            async with aclosing(self._until_it_stops()) as said:
                async for events in said:
                    yield events
            async with aclosing(self._end_passage()) as rest:
                async for events in rest:
                    yield events
            if not self._goes_on():
                yield [TurnFinished(self._finish)]
                return
            self._begin_passage()

    def _goes_on(self) -> bool:
        """Whether the model is asked to go on, with the answers of the tools that ran."""
        answers, asked = self._answers, self._asked
        self._answers, self._asked = [], False
        if not answers:
            return False
        self._has_called = True
        if self._budget is not None:
            self._budget.begin_again()
        self.transcript.give(answers, () if asked else self._renderer.cue)
        if asked:  # the client's answer must come first
            return False
        if not self._has_room():
            self._finish = Finish.LENGTH
            return False
        return True

    def _begin_passage(self) -> None:
        self._decoder, self._call = Decoder(self._encoding, self._recipients), None
        self._between = None

    async def _end_passage(self) -> AsyncGenerator[list[TurnEvent], None]:
        """The rest of what was said since the last passage, and the call that it ended with, if we run it."""
        if self._between is not None:
            self._finish = Finish.STOP  # even at the limit: what was said is whole
            return
        if closing := self.close(stopped=self._finish is Finish.STOP):
            yield closing
        call = self._call_to_run(self.transcript.end_generation(self._renderer), self._finish)
        if call is not None:
            yield [ToolStarted(call.header, call.text)]
            yield [ToolFinished(call.header, await self._run(call.header, call.text))]

    async def _until_it_stops(self) -> AsyncGenerator[list[TurnEvent], None]:
        """What the model says until it stops, or calls a tool of ours; its reasoning within the budget."""
        while True:
            self._finish, self._over = Finish.STOP, False
            prompt = self.transcript.prompt_so_far(self._renderer.cue)
            async with aclosing(self._engine.generate(prompt, self._left(prompt))) as steps:
                async for step in steps:
                    async with aclosing(self._read(step)) as said:
                        async for events in said:
                            yield events
                    if self._call is not None or self._over or self._is_imagined:
                        break  # what the model said after a call to us, it said without its result
                    if step.finish is not None:
                        self._finish = step.finish
            if not self._over:
                return
            if closing := self._end_reasoning():
                yield closing
            if not self._has_room():
                self._finish = Finish.LENGTH
                return

    async def _read(self, step: Step) -> AsyncGenerator[list[TurnEvent], None]:
        if not self.transcript.sampled:  # what later generations find is the turn's own: input is told once
            self.transcript.cached_tokens += step.cached_tokens
        at, end = 0, len(step.tokens)
        while at < end:
            if self._between is not None:
                self.transcript.pass_over(step.tokens[at])
                self._between.take(step.tokens[at])
                at += 1
                if self._between.led_elsewhere:
                    return
                if self._between.led_on:
                    self._begin_passage()
                continue
            events, at = self._decode(step, at)
            if events:
                yield events
            if self._call is not None or self._over:
                return
            if self._parallel and step.tokens[at - 1] == CALL:
                async with aclosing(self._end_passage()) as rest:
                    async for events in rest:
                        yield events
                self._between = Between(self._encoding)

    @property
    def _is_imagined(self) -> bool:
        """Whether the model goes on with what is not its to say."""
        return self._between is not None and self._between.led_elsewhere

    async def read_prompt(self) -> AsyncGenerator[list[TurnEvent], None]:
        """Nothing is said: the engine reads the prompt, so that a turn which begins like it starts sooner."""
        reading = replace(self._sampling, max_tokens=0, grammar=None)
        async with aclosing(self._engine.generate(self.transcript.prompt, reading)) as steps:
            async for step in steps:
                self.transcript.cached_tokens += step.cached_tokens
        yield [TurnFinished(Finish.STOP)]

    def close(self, *, stopped: bool = False) -> list[TurnEvent]:
        """What the decoder still holds, told: also after a failure, so that no open item loses its text.

        A header cut short is the model's slip only where it `stopped` by itself.
        """
        events: list[TurnEvent] = []
        if self._call is None:
            for event in self._decoder.close():
                if stopped or not (isinstance(event, Slip) and event.kind is SlipKind.CUT_HEADER):
                    self._record(event, events)
        return events

    def end(self) -> None:
        """What a failure has left open becomes history: what was said, and what tools have answered to it."""
        self.transcript.end_generation(self._renderer)
        self.transcript.segments += self._answers  # the model has not read them: they are no input yet
        self._answers = []

    def _end_reasoning(self) -> list[TurnEvent]:
        """The reasoning ends here, whatever the model had in mind, as far as the limit has room."""
        assert self._budget is not None
        tokens = self._budget.closing()
        if self._sampling.max_tokens is not None:
            tokens = tokens[: self._sampling.max_tokens - self.transcript.sampled]
        events: list[TurnEvent] = []
        for token in tokens:
            for event in self._decoder.feed(token):
                self._record(event, events)
        self.transcript.sample(tokens)
        return events

    def _decode(self, step: Step, at: int) -> tuple[list[TurnEvent], int]:
        """The step's tokens from `at` on as events, and how far they were read."""
        tokens, feed = step.tokens[at:] if at else step.tokens, self._decoder.feed
        if step.logprobs is not None:
            return self._decode_scored(tokens, step.logprobs[at:], at)
        budget, last = self._budget, CALL if self._parallel else None
        events: list[TurnEvent] = []
        taken = 0
        for token in tokens:
            taken += 1
            for event in feed(token):
                if type(event) is TextDelta:  # by far the most frequent
                    events.append(event)
                    continue
                self._record(event, events)
                if self._call is not None:
                    break
            if token == last or self._call is not None or (budget is not None and self._is_over(token)):
                break
        self.transcript.sample(tokens[:taken])
        return events, at + taken

    def _decode_scored(
        self, tokens: Sequence[int], scores: Sequence[TokenLogprob], at: int
    ) -> tuple[list[TurnEvent], int]:
        """As above, each token of a text told with its score; apart, so that the plain path pays nothing."""
        events: list[TurnEvent] = []
        taken = 0
        for token, score in zip(tokens, scores, strict=True):
            taken += 1
            found = self._decoder.feed(token)
            scored = [TokenScored(score)] if token < FIRST_SPECIAL and self._decoder.in_text else []
            for event in found:
                if scored and isinstance(event, TextDelta):
                    events.append(scored.pop())
                self._record(event, events)
                if self._call is not None:
                    break
            events += scored
            if (self._parallel and token == CALL) or self._call is not None or self._is_over(token):
                break
        self.transcript.sample(tokens[:taken])
        return events, at + taken

    def _is_over(self, token: int) -> bool:
        """Whether the reasoning must end behind this token."""
        self._over = self._budget is not None and self._budget.closes(token, self._decoder)
        return self._over

    def _record(self, event: HarmonyEvent, events: list[TurnEvent]) -> None:
        if isinstance(event, Slip):
            self.transcript.slips.append(event)
            return
        if isinstance(event, MessageFinished):
            self.transcript.finish_message(event)
            if event.closed_by is not ClosedBy.TRUNCATED and event.header.recipient is not None:
                if self._is_ours(event.header):
                    self._call = event
                elif self._parallel:
                    self._asked = True
        events.append(event)

    def _is_ours(self, header: Header) -> bool:
        return header.recipient is not None and self._tools is not None and self._tools.runs(header.recipient)

    def _call_to_run(self, last: MessageFinished | None, finish: Finish) -> MessageFinished | None:
        """The call to run now, if the generation ended with one: cut off by a limit it is not complete."""
        if last is None or finish is Finish.LENGTH or not self._is_ours(last.header):
            return None
        return last

    async def _run(self, header: Header, arguments: str) -> ToolOutput:
        assert self._tools is not None
        assert header.recipient is not None
        output = await self._tools.run(header.recipient, arguments)
        answer = self._renderer.tool_result(header.recipient, output.text, channel=header.channel)
        self._answers.append(answer)
        return output

    def _has_room(self) -> bool:
        prompt = len(self.transcript.prompt) + len(self.transcript.tokens)
        limit = self._sampling.max_tokens
        return prompt < self._engine.info.context_length and (
            limit is None or self.transcript.sampled < limit
        )

    def _left(self, prompt: list[int]) -> Sampling:
        """The limit that earlier generations of this turn have left, within the context."""
        limit = self._sampling.max_tokens
        reasons = self._budget is None or not self._budget.spent
        grammar = self._binding.at(called=self._has_called, reasons=reasons)
        sampling = self._sampling if grammar is None else replace(self._sampling, grammar=grammar)
        if limit is None or not self.transcript.sampled:
            return sampling
        room = self._engine.info.context_length - len(prompt)
        return replace(sampling, max_tokens=min(limit - self.transcript.sampled, room))
