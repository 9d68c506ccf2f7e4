"""One turn of the model: generations, and the built-in tools that run between them.

Takes a plan and a transcript. Returns batches of turn events, usually one per step of the engine, and one
`TurnFinished` at the end. This is the only place where tools run during a turn; every API reads the same
events. It must not know items, ids or HTTP. Closing the iterator stops the engine and the tool.

Tools run one after the other. If a generation makes several calls, the engine continues to sample meanwhile,
and the next generation follows all results.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from gpt_oss_server.constraints.turn_check import TurnCheck
from gpt_oss_server.errors import InvalidOutput
from gpt_oss_server.harmony.events import ClosedBy, Header, MessageStarted, TextDelta
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.turns.events import ToolFinished, ToolStarted, TurnEvent, TurnFinished
from gpt_oss_server.turns.generation import Generation
from gpt_oss_server.turns.plan import TurnPlan
from gpt_oss_server.turns.reasoning_budget import ReasoningBudget
from gpt_oss_server.turns.repetition import Rounds, TurnWarning, WarningKind
from gpt_oss_server.turns.transcript import ToolRun, Transcript
from inference.engine import Finish
from tools.tool import ToolOutput


class Turn:
    """Iterate over `events()` once. After a failure, `close` returns the events that are still held back."""

    def __init__(self, plan: TurnPlan, transcript: Transcript) -> None:
        self.transcript = transcript
        self.has_begun = False  # an approved call may have run
        self._plan = plan
        self._results: list[Segment] = []  # of the tools that ran in this generation
        self._waits = False  # a call goes on after the client's own, in a later turn
        self._refused = ""  # why the open message must not be shown
        self._rounds = Rounds()
        self._budget: ReasoningBudget | None = None
        if plan.reasoning_budget is not None and not plan.engine.info.replays:
            self._budget = ReasoningBudget(plan.reasoning_budget, plan.encoding, plan.renderer.cue)
        self._generation = self._new_generation(after_call=bool(plan.approved))

    def prefill(self, tokens: Sequence[int]) -> list[TurnEvent]:
        """Begin the turn with tokens from the request, and return their events."""
        return self._generation.prefill(tokens)

    async def events(self) -> AsyncGenerator[list[TurnEvent], None]:
        self.has_begun = True
        check = self._plan.binding.check
        for recipient, arguments in self._plan.approved:
            header = Header("commentary", recipient, "json")
            text = [TextDelta(arguments)] if arguments else []
            yield [MessageStarted(header), *text, started := ToolStarted(header, arguments)]
            yield [ToolFinished(header, await self._run(started))]
        if self._results:
            self._give_results(() if self._waits else self._plan.renderer.cue)
        if self._waits:
            self.transcript.unread = True
            yield [TurnFinished(Finish.STOP)]
            return
        while True:
            async with aclosing(self._generation.events()) as generated:
                async for batch in generated:
                    if check is not None and (index := self._place_of_refused(check, batch)) is not None:
                        if index:
                            yield batch[:index]
                        raise InvalidOutput(self._refused)
                    yield batch
                    if type(last := batch[-1]) is ToolStarted:
                        yield [ToolFinished(last.header, await self._run(last))]
            if (finish := self._next()) is not None:
                yield [TurnFinished(finish)]
                return

    async def read_prompt(self) -> AsyncGenerator[list[TurnEvent], None]:
        """Let the engine read the prompt and generate nothing: turns with the same beginning are faster."""
        reading = replace(self._plan.sampling, max_tokens=0, grammar=None)
        async with aclosing(self._plan.engine.generate(self.transcript.prompt, reading)) as steps:
            async for step in steps:
                self.transcript.cached_tokens += step.cached_tokens
        yield [TurnFinished(Finish.STOP)]

    @property
    def stopped_by(self) -> int | None:
        """The stop id of the request's own that ended the turn, if one did."""
        return self._generation.stopped_by

    async def check_form(self) -> None:
        """Raise `InvalidOutput` if the turn lacks the required form, which some engines cannot enforce."""
        check = self._plan.binding.check
        if check is None:
            return
        messages = [(message.header, message.text) for message in self.transcript.messages]
        called = bool(self._plan.approved)
        problem = await asyncio.to_thread(check.problem, messages, called)  # slow if the answer is large
        if problem is not None:
            raise InvalidOutput(problem)

    def close(self) -> list[TurnEvent]:
        """Return the events that are still held back after a failure or an early end: no text is lost."""
        return [] if self._refused else self._generation.close()

    def end(self) -> None:
        """Add the messages that a failure left open, and the results of their calls, to the history."""
        self.transcript.end_generation(self._plan.renderer)
        self.transcript.segments += self._results  # not counted as input: the model has not read them
        self._results = []

    def _place_of_refused(self, check: TurnCheck, batch: Sequence[TurnEvent]) -> int | None:
        """Where a call begins that the request does not allow. A client might run it once it is shown."""
        for index, event in enumerate(batch):
            if type(event) is MessageStarted and (problem := check.header_problem(event.header)) is not None:
                self._refused = problem
                return index
        return None

    def _next(self) -> Finish | None:
        """Begin the next generation if the model must read results; otherwise, return the turn's finish."""
        finish, calls_client = self._generation.finish, self._generation.calls_client or self._waits
        if not self._results:
            return finish if self._waits else self._end_or_ask_again(finish)
        if self._budget is not None:
            self._budget.begin_again()
        ran = self.transcript.tool_runs[-len(self._results) :]
        warning = self._rounds.add(tuple((run.recipient, run.arguments, run.output) for run in ran))
        self._give_results(() if calls_client else self._plan.renderer.cue)
        if calls_client:  # the client's result must come first
            return finish
        if not self._generation.has_room():
            return Finish.LENGTH
        if warning is not None:
            self.transcript.warnings.append(warning)
            return Finish.LENGTH
        self._generation = self._new_generation(after_call=True)
        return None

    def _end_or_ask_again(self, finish: Finish) -> Finish | None:
        """A model that ends its turn after its reasoning goes on, once; else the turn is incomplete.

        It reads its reasoning with the end that it should have had. Any engine can do this, and the model may
        still call a tool.
        """
        transcript = self.transcript
        if finish is not Finish.STOP or not self._lacks_answer():
            return finish
        asks = WarningKind.ASKED_AGAIN not in transcript.departures and self._generation.has_room()
        kind = WarningKind.ASKED_AGAIN if asks else WarningKind.NO_ANSWER
        effect = "so it was asked to go on" if asks else "so the turn is incomplete"
        transcript.warnings.append(TurnWarning(kind, f"The model reasoned and gave no answer, {effect}."))
        if not asks:
            return Finish.LENGTH
        self._give_results(self._plan.renderer.cue)
        self._generation = self._new_generation(after_call=bool(transcript.tool_runs))
        return None

    def _lacks_answer(self) -> bool:
        """Whether the model ended its turn after reasoning, without an answer or a call to the client."""
        messages = self.transcript.messages
        if not messages or messages[-1].closed_by not in (ClosedBy.RETURN, ClosedBy.CALL):
            return False
        headers = [message.header for message in messages]
        calls = any(header.recipient and not self._plan.runs(header) for header in headers)
        return headers[-1].channel == "analysis" and not calls and "final" not in {h.channel for h in headers}

    def _new_generation(self, *, after_call: bool) -> Generation:
        return Generation(self._plan, self.transcript, self._budget, after_call=after_call)

    def _give_results(self, cue: Sequence[int]) -> None:
        self.transcript.give(self._results, cue)
        self._results = []

    async def _run(self, call: ToolStarted) -> ToolOutput:
        tools, recipient = self._plan.tools, call.header.recipient
        assert tools is not None
        assert recipient is not None
        transcript, began = self.transcript, self.transcript.clock()
        with transcript.watch.tool(recipient) as watched:
            output = await tools.run(recipient, call.arguments)
            watched.failed = output.failed
        if output.waits:
            self._waits = True
            return output
        run = ToolRun(
            len(transcript.generations), recipient, call.arguments, output.text, began, transcript.clock()
        )
        transcript.tool_runs.append(run)
        result = self._plan.renderer.tool_result(recipient, output.text, channel=call.header.channel)
        self._results.append(result)
        return output
