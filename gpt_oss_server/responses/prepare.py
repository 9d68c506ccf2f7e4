"""A request, made ready to run: the exact prompt, how to sample, and what the response will echo.

In: a validated request, what it continues (if anything), the engine's facts and the settings. Out: a
frozen `Prepared`, or an error before anything is generated. Where the conversation is to be compacted first,
that is what is prepared, with the way to go on from it. Rendering for `POST /render` ends here too, so
what it shows is what the model gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.constraints.binding import Binding, Wanted
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.decoder import Recipients
from gpt_oss_server.harmony.history import Segment, since_compaction
from gpt_oss_server.responses.compaction import (
    SHARE,
    Compaction,
    asking,
    instructions_in,
    room_for_summary,
    said_in,
)
from gpt_oss_server.responses.input.reader import read_input
from gpt_oss_server.responses.input.reading import Approved, Conversation
from gpt_oss_server.responses.past import Past
from gpt_oss_server.responses.request import CreateResponse
from gpt_oss_server.serving.served import Served
from gpt_oss_server.tooling.form import answer_format, wanted_of
from gpt_oss_server.tooling.hosted import HostedTools, known_recipients
from gpt_oss_server.tooling.requested import RequestTools
from gpt_oss_server.turns.prompting import Thinking, fitted_prompt, sampling_of, thinking_of, with_verbosity
from inference.engine import EngineInfo, Sampling


@dataclass(frozen=True, slots=True)
class Prepared:
    request: CreateResponse
    prompt: tuple[int, ...]
    sampling: Sampling
    recipients: Recipients
    tools: RequestTools
    effort: str  # as the request has it
    thinking: Thinking
    history: tuple[Segment, ...]  # the conversation, this request's input included
    own: tuple[Segment, ...]  # the segments that this request adds to its conversation
    items: tuple[dict[str, Any], ...]
    call_recipients: dict[str, str]  # call_id → Harmony recipient
    hosted: HostedTools
    approvals: dict[str, tuple[str, str]]  # request id → (recipient, arguments) of calls that wait still
    approved: tuple[Approved, ...]  # calls that the client has just approved
    wanted: Wanted  # of the form of the turn
    binding: Binding = field(default_factory=Binding)  # what that comes to
    past: Past = field(default_factory=Past)  # what the request continues
    compaction: Compaction | None = None  # to be made first: then `prompt` is the one that asks for it
    # After the compaction: from the segments that stand for what came before.
    go_on: Callable[[tuple[Segment, ...]], Prepared] | None = None


def prepare(
    request: CreateResponse,
    past: Past,
    tools: RequestTools,
    hosted: HostedTools,
    served: Served,
    info: EngineInfo,
    *,
    compacts: bool = False,
) -> Prepared:
    """With `compacts` the conversation is compacted and nothing else, as by a compaction_trigger."""
    conversation = read_input(
        request.input,
        served.renderer,
        served.ids,
        recipients=past.recipients,
        approvals=past.approvals,
        results=past.results,
        servers=hosted.names,
        sealer=lambda: served.sealer,
        leads=not past.history,
    )
    history = since_compaction((*past.history, *conversation.segments))
    if not history:
        raise InvalidRequest("`input` is empty: send at least one message.", param="input")
    preparing = _Preparing(request, tools, hosted, served, info, conversation)
    alone = compacts or conversation.compacts
    if alone or preparing.is_over_threshold(history):
        return preparing.compacting(history, alone=alone)
    return preparing.ready(history, tuple(conversation.segments))


class _Preparing:
    """A request whose input has been read."""

    def __init__(
        self,
        request: CreateResponse,
        tools: RequestTools,
        hosted: HostedTools,
        served: Served,
        info: EngineInfo,
        conversation: Conversation,
    ) -> None:
        self._request = request
        self._tools = tools
        self._hosted = hosted
        self._served = served
        self._info = info
        self._conversation = conversation
        self._answer = answer_format(request.text.format if request.text else None)
        self._effort = conversation.effort or request.effort or served.settings.default_reasoning_effort
        self._thinking = thinking_of(self._effort, request.reasoning_budget, served.settings)

    @property
    def _context(self) -> int:
        return self._info.context_length

    def is_over_threshold(self, history: tuple[Segment, ...]) -> bool:
        threshold = self._threshold
        return threshold is not None and self._length(history) >= threshold

    def ready(self, history: tuple[Segment, ...], own: tuple[Segment, ...]) -> Prepared:
        """Own are the segments of the history that are not in the conversation yet."""
        request = self._request
        prompt, history = fitted_prompt(
            self._served.renderer,
            self._system,
            history,
            **self._told,
            context=self._context,
            truncates=request.truncation == "auto",
            answer=request.max_output_tokens,
            all_reasoning=request.reasoning_context == "all_turns",
            param="input",
        )
        return self._prepared(prompt, history, own, request.max_output_tokens)

    def compacting(self, history: tuple[Segment, ...], *, alone: bool) -> Prepared:
        served = self._served
        prompt = asking(history, self._opened, served.renderer, self._context)
        own = tuple(self._conversation.segments)
        room = room_for_summary(self._context)
        asked = self._request.max_output_tokens if alone else None  # else it is the answer's
        prepared = self._prepared(prompt, history, own, min(room, asked or room))

        def go_on(compacted: tuple[Segment, ...]) -> Prepared:
            return self.ready(since_compaction((*history, *compacted)), (*own, *compacted))

        compaction = Compaction(
            prompt=prompt,
            # As the request asks, but for what is asked of its answer.
            sampling=replace(
                prepared.sampling, logprobs=None, logit_bias={}, presence_penalty=0.0, frequency_penalty=0.0
            ),
            instructions=instructions_in(history),
            said=said_in(history, served.encoding, min(self._context, self._threshold or self._context)),
            alone=alone,
        )
        return replace(prepared, compaction=compaction, go_on=go_on)

    def _prepared(
        self,
        prompt: tuple[int, ...],
        history: tuple[Segment, ...],
        own: tuple[Segment, ...],
        limit: int | None,
    ) -> Prepared:
        request, tools, hosted = self._request, self._tools, self._hosted
        read = self._conversation
        parallel = request.allows_parallel_calls
        wanted = wanted_of(request.tool_choice, self._answer, tools, hosted, parallel=parallel)
        hosted.count_on_from(prompt, self._served.encoding)
        return Prepared(
            request=request,
            prompt=prompt,
            sampling=sampling_of(
                request,
                self._info,
                self._served.settings,
                prompt=len(prompt),
                limit=limit,
                logprobs=request.scores,
            ),
            recipients=known_recipients(tools, hosted),
            tools=tools,
            effort=self._effort,
            thinking=self._thinking,
            history=history,
            own=own,
            items=tuple(read.items),
            call_recipients=read.recipients,
            hosted=hosted,
            approvals=read.approvals,
            approved=tuple(read.approved),
            wanted=replace(wanted, bounds_reasoning=self._thinking.budget is not None),
        )

    @property
    def _threshold(self) -> int | None:
        """From how many tokens on the conversation is compacted, if it is: in time, whatever is asked."""
        latest = self._context - self._context // SHARE
        asked = [each.compact_threshold or latest for each in self._request.context_management or ()]
        return min([latest, *asked]) if asked else None

    def _length(self, history: tuple[Segment, ...]) -> int:
        all_reasoning = self._request.reasoning_context == "all_turns"
        return len(self._served.renderer.prompt(*self._opened(history), all_reasoning=all_reasoning))

    def _opened(self, history: Sequence[Segment]) -> tuple[list[Segment], list[Segment]]:
        return self._served.renderer.opening(self._system, history, **self._told)

    @property
    def _system(self) -> Segment:
        served = self._served
        return served.renderer.system(
            effort=self._thinking.effort,
            date=served.date(),
            identity=served.settings.identity,
            builtin_tools=self._hosted.in_system_message,
            function_tools=bool(self._tools.functions),
        )

    @property
    def _told(self) -> dict[str, Any]:
        """What the developer message is made of, beside the instructions in the history."""
        request = self._request
        return {
            "instructions": with_verbosity(request.instructions, request.verbosity),
            "tools": self._tools.functions,
            "namespaces": (*self._tools.namespaces, *self._hosted.in_developer_message),
            "response_formats": self._answer.told,
        }
