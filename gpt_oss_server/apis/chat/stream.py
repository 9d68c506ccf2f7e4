"""Maps turn events to the parts of one choice.

Takes turn events in batches, then exactly one `finish`. Returns the choices of chunks, each with the index
and a delta, the last with the finish reason. `stopped` is true once a stop string is found: the stream then
shows nothing more, and the caller can close the generation.

    Harmony message                         in the choice
    analysis                                reasoning
    commentary without a recipient          content, followed by a blank line; reasoning instead,
                                            where the request or the operator wants it there
    final                                   content; stop strings and log-probabilities apply here
    to a function or an unknown recipient   tool_calls
    to a hosted tool                        executed_tools, with its result
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, assert_never

from gpt_oss_server.apis.chat import writers
from gpt_oss_server.content.logprobs import Scores, Speller
from gpt_oss_server.harmony.events import Header, MessageFinished, MessageStarted, TextDelta
from gpt_oss_server.harmony.recipients import called_name
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.turns.events import TokenScored, ToolFinished, ToolStarted, TurnEvent, TurnFinished
from gpt_oss_server.turns.repetition import TurnWarning
from gpt_oss_server.turns.stops import StopFilter
from inference.engine import Finish

if TYPE_CHECKING:
    from tools.browser.citations import CitationRewriter, Resolve

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class Form:
    """The decisions of a request about the form of its choices."""

    new_call_id: Callable[[], str]
    runs_here: Callable[[str], bool] = lambda recipient: False
    kinds: Kinds = field(default_factory=Kinds.of)
    cite: Resolve | None = None  # resolves a citation's cursor; None: there are no citations
    answers_json: bool = False  # the request wants a JSON answer
    reasoning_fields: tuple[str, ...] = ("reasoning", "reasoning_content")
    preambles_are_reasoning: bool = False
    stops: tuple[str, ...] = ()
    shows_stop: bool = False
    speller: Speller | None = None  # None: no log-probabilities
    custom: frozenset[str] = frozenset()  # recipients whose calls are text


class ChoiceStream:
    def __init__(self, index: int, form: Form) -> None:
        self._index = index
        self._form = form
        self._shown = writers.Shown()
        self._writer: writers.Writer | None = None
        self._stops: StopFilter | None = None  # of the open answer, or of the stopped one
        self._ran: ToolStarted | None = None

    @property
    def stopped(self) -> bool:
        return self._stops is not None and self._stops.found is not None

    def start(self) -> list[writers.ChunkPart]:
        return [self._choice({"delta": {"role": "assistant", "content": ""}})]

    def feed(self, events: Sequence[TurnEvent], *, silently: bool = False) -> list[writers.ChunkPart]:
        """The choice's parts. `silently` hides text: the client knows the start of an answer that it gave."""
        out: list[writers.ChunkPart] = []
        for event in events:
            if self.stopped:
                break
            if isinstance(event, TextDelta):  # first, as it is by far the most frequent
                if self._writer is not None and not silently:
                    out += self._writer.delta(event.text)
                continue
            match event:
                case MessageStarted():
                    self._writer = self._route(event.header)
                    out += self._writer.open()
                case MessageFinished():
                    out += self._close()
                case TokenScored():
                    if self._writer is not None:
                        self._writer.score(event.logprob)
                case ToolStarted():
                    self._ran = event
                case ToolFinished():
                    out.append(self._executed(event))
                case TurnFinished():
                    pass  # the run handles the end
                case _:
                    assert_never(event)
        return [self._choice(part) for part in out]

    def finish(
        self, finish: Finish, stopped_by: int | None = None, cut_short: TurnWarning | None = None
    ) -> list[writers.ChunkPart]:
        """The text that is still held back, and the end of the choice."""
        out = [self._choice(part) for part in self._close()]
        end = self._choice({"delta": {}})
        end["finish_reason"] = self._reason(finish)
        # What ended the choice before the model did, as in vLLM; null if nothing did.
        end["stop_reason"] = self._stops.found if self._stops is not None and self.stopped else stopped_by
        if cut_short is not None and not self.stopped:
            end["stop_reason"] = str(cut_short.kind)
        return [*out, end]

    def _choice(self, part: writers.ChunkPart) -> writers.ChunkPart:
        part["index"] = self._index
        part["finish_reason"] = None
        return part

    def _close(self) -> list[writers.ChunkPart]:
        writer, self._writer = self._writer, None
        return writer.close() if writer is not None else []

    def _reason(self, finish: Finish) -> FinishReason:
        if self.stopped:
            return "stop"
        if finish is not Finish.STOP:
            return "length" if finish is Finish.LENGTH else "content_filter"
        return "tool_calls" if self._shown.calls else "stop"

    def _route(self, header: Header) -> writers.Writer:
        form, shown = self._form, self._shown
        if (recipient := header.recipient) is not None:
            if form.runs_here(recipient):
                return writers.Writer()  # the stream shows the call with its result
            name, is_custom = called_name(recipient), recipient in form.custom
            return writers.CallWriter(shown, name, form.new_call_id, is_custom=is_custom)
        is_preamble = header.channel == "commentary"
        if header.channel == "analysis" or (is_preamble and form.preambles_are_reasoning):
            return writers.ReasoningWriter(shown, form.reasoning_fields)
        scores = Scores(form.speller) if form.speller is not None else None
        if is_preamble:
            return writers.ContentWriter(shown, citations=self._citations(), scores=scores)
        self._stops = StopFilter(form.stops, shows_stop=form.shows_stop) if form.stops else None
        citations = self._citations(in_json=form.answers_json)
        return writers.ContentWriter(shown, stops=self._stops, citations=citations, scores=scores)

    def _citations(self, *, in_json: bool = False) -> CitationRewriter | None:
        if self._form.cite is None:
            return None
        from tools.browser.citations import CitationRewriter  # an optional dependency

        return CitationRewriter(self._form.cite, in_json=in_json)

    def _executed(self, event: ToolFinished) -> writers.ChunkPart:
        recipient = event.header.recipient or ""
        tool = self._form.kinds.called(recipient)
        executed: dict[str, Any] = {
            "index": self._shown.executed,
            "type": tool.types[0] if tool is not None and tool.types else "mcp",
            "name": recipient,
            "arguments": self._ran.arguments if self._ran is not None else "",
            "output": event.output.text,
        }
        self._shown.executed += 1
        return {"delta": {"executed_tools": [executed]}}
