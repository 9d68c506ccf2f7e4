"""Prepares a request: the exact prompt, the sampling, and the values that the response echoes.

Takes a validated request, the past that it continues, and the engine's facts. Returns a frozen
`PreparedResponse`, or raises an error before anything is generated. If the conversation must be compacted
first, it prepares the compaction and the way to continue after it. `POST /render` uses it too, so it shows
exactly the model's prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.apis.responses.compaction import (
    SHARE,
    Compaction,
    instructions_in,
    summary_limit,
    summary_prompt,
    user_messages_in,
)
from gpt_oss_server.apis.responses.input import check_answered, read_input, tools_of, without_cut_results
from gpt_oss_server.apis.responses.past import Past
from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import requested_answer
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Layout, Segment, since_compaction
from gpt_oss_server.harmony.render import unanswered
from gpt_oss_server.items.program import resume_programs
from gpt_oss_server.runs.moderated import moderated
from gpt_oss_server.runs.prepared import Prepared, bind_and_lay_out
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.work import Work
from gpt_oss_server.toolset.bound import HostedTools, known_recipients
from gpt_oss_server.toolset.choice import wanted_of
from gpt_oss_server.turns.prompt import (
    Head,
    begun_call,
    check_can_fit,
    fitted_layout,
    sampling_of,
    thinking_of,
    with_verbosity,
)
from gpt_oss_server.turns.stops import HARMONY_STOPS


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedResponse(Prepared):
    request: CreateResponse
    length: int  # of the prompt
    effort: str  # as requested
    history: tuple[Segment, ...]  # the conversation, this request's input included
    own: tuple[Segment, ...]  # the segments that this request adds to its conversation
    items: tuple[dict[str, Any], ...]
    call_recipients: dict[str, str]  # call_id → Harmony recipient
    approvals: dict[str, tuple[str, str]]  # request id → (recipient, arguments) of calls that still wait
    approval_ids: tuple[tuple[str, str], ...]  # (recipient, request id) of calls just approved
    past: Past  # what the request continues
    compaction: Compaction | None = None  # if set, it runs first, and `prompt` requests it
    # Prepares the request after the compaction, from the segments that replace the earlier history.
    after_compaction: Callable[[tuple[Segment, ...]], PreparedResponse] | None = None


@dataclass
class _Preparing:
    """A request whose tools are bound, and whose input is read.

    With `compacts`, the conversation is only compacted, as with a compaction_trigger. With `counts`, only the
    prompt's length is determined, which may exceed every context. The answer goes on from the text with which
    it has `begun`.
    """

    request: CreateResponse
    past: Past
    tools: RequestTools
    hosted: HostedTools
    work: Work
    context: int
    compacts: bool = False
    counts: bool = False
    begun: str | None = None

    def __post_init__(self) -> None:
        request, past, model = self.request, self.past, self.work.model
        renderer, form = model.renderer, request.text.format if request.text else None
        if request.truncation != "auto":
            parts = (request.input, request.instructions, request.tools, form)
            check_can_fit(self.context, "input", *parts)
        self._conversation = conversation = read_input(
            request.input,
            self.work,
            past,
            servers=self.hosted.servers.names,
            leads=not past.history,
            tools=self.tools.of_items,
        )
        resume_programs(conversation)
        waiting = unanswered(past.history, renderer)
        earlier = without_cut_results(past.history, waiting, conversation.answered, renderer)
        self._history = since_compaction((*earlier, *conversation.segments))
        if not self._history:
            raise InvalidRequest.at("input", "is empty: send at least one message.")
        check_answered(past.recipients, waiting, conversation.answered)
        begun = () if self.begun is None else renderer.answer(self.begun).tokens
        self._begun = tuple(begun[len(renderer.cue) : -1])
        self._answer = requested_answer(request.forms, form, "text.format")
        self._effort = conversation.effort or request.effort or model.settings.default_reasoning_effort
        self._thinking = thinking_of(self._effort, request.reasoning_budget, model.settings)
        self._all_reasoning = request.reasoning_context == "all_turns"
        self._head = Head.of(
            model,
            self._thinking,
            self.tools,
            self.hosted,
            date=self.work.date(),
            instructions=with_verbosity(request.instructions, request.verbosity),
            formats=self._answer.declared,
        )

    def prepared(self) -> PreparedResponse:
        if self.compacts or self._conversation.compacts:
            return self._compacting(alone=True)
        whole = self._layout(self._history)
        if self._threshold is not None and whole.length >= self._threshold:
            return self._compacting(alone=False)
        return self._ready(self._history, tuple(self._conversation.segments), whole)

    @property
    def _threshold(self) -> int | None:
        """The prompt length at which the conversation is compacted; None if it never is."""
        latest = self.context - self.context // SHARE
        wanted = [entry.compact_threshold or latest for entry in self.request.context_management or ()]
        return min([latest, *wanted]) if wanted else None

    def _layout(self, history: tuple[Segment, ...]) -> Layout:
        """The prompt of the whole history, even if it exceeds the context."""
        return self._head.layout(history, all_reasoning=self._all_reasoning)

    def _ready(
        self, history: tuple[Segment, ...], own: tuple[Segment, ...], whole: Layout
    ) -> PreparedResponse:
        """`own`: the segments that this request adds. `whole`: the prompt of the whole history."""
        request = self.request
        layout, history = fitted_layout(
            self._head,
            history,
            whole=whole,
            context=self.context - len(self._begun),
            truncates=request.truncation == "auto",
            answer=request.max_output_tokens,
            all_reasoning=self._all_reasoning,
            param="input",
        )
        self.hosted.resume_from(history, self.work.model.encoding)
        prompt = () if self.counts else tuple(layout.tokens())
        return self._prepared(prompt, layout.length, history, own, request.max_output_tokens)

    def _compacting(self, *, alone: bool) -> PreparedResponse:
        history = self._history
        prompt = summary_prompt(history, self._head, self.context)
        own = tuple(self._conversation.segments)
        room = summary_limit(history, self.context)
        limit = self.request.max_output_tokens if alone else None  # otherwise it bounds the answer
        prepared = self._prepared(prompt, len(prompt), history, own, min(room, limit or room))

        def after_compaction(compacted: tuple[Segment, ...]) -> PreparedResponse:
            remaining = since_compaction((*history, *compacted))
            return self._ready(remaining, (*own, *compacted), self._layout(remaining))

        compaction = Compaction(
            prompt=prompt,
            # The request's own sampling, without the fields that concern its answer.
            sampling=replace(
                prepared.sampling,
                logprobs=None,
                logit_bias={},
                presence_penalty=0.0,
                frequency_penalty=0.0,
                repetition_penalty=1.0,
                min_tokens=0,
                stop_token_ids=HARMONY_STOPS,
                ignored_stop_ids=frozenset(),
            ),
            instructions=instructions_in(history),
            user_messages=user_messages_in(
                history, self.work.model.encoding, self._threshold or self.context
            ),
            alone=alone,
        )
        return replace(prepared, compaction=compaction, after_compaction=after_compaction)

    def _prepared(
        self,
        prompt: tuple[int, ...],
        length: int,
        history: tuple[Segment, ...],
        own: tuple[Segment, ...],
        limit: int | None,
    ) -> PreparedResponse:
        request, tools, hosted = self.request, self.tools, self.hosted
        read = self._conversation
        parallel = request.allows_parallel_calls
        wanted = wanted_of(request.tool_choice, self._answer, tools, hosted, parallel=parallel)
        approved = tuple((call.recipient, call.arguments) for call in read.approved)
        prefill = self._begun
        if not (prefill or approved):
            prefill = begun_call(wanted, self.work.model.info, self.work.model.renderer)
        length += len(self._begun)
        return PreparedResponse(
            request=request,
            prompt=prompt,
            prefill=prefill,
            length=length,
            sampling=sampling_of(
                request, self.work.model, self.work.caller, prompt=length, limit=limit, context=self.context
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
            approved=approved,
            approval_ids=tuple((call.recipient, call.request_id) for call in read.approved),
            past=self.past,
            wanted=replace(
                wanted,
                bounds_reasoning=self._thinking.budget is not None,
                begun=self._begun,
                begun_param="messages",
            ),
        )


async def bind(
    served: Served,
    work: Work,
    request: CreateResponse,
    session: str,
    past: Past,
    *,
    context: int | None = None,
    **how: Any,
) -> PreparedResponse:
    """Binds the request's tools, its prompt and the form of its turn.

    `context` takes the place of the model's; `how`: the optional fields of `_Preparing`.
    """
    model = work.model
    form = request.text.format if request.text else None
    judging = moderated(request.moderation, request.input, work.caller, served.settings, served.judge)

    def read_tools() -> RequestTools:
        offered = request.tool_choice != "none"
        return tools_of(work.kinds, request.tools, past.history, request.input, offered=offered)

    def lay_out(tools: RequestTools, hosted: HostedTools) -> PreparedResponse:
        most = context or model.info.context_length
        preparing = _Preparing(request, past, tools, hosted, work, most, **how)
        return replace(preparing.prepared(), moderated=judging)

    async def finish(laid: PreparedResponse) -> PreparedResponse:
        if laid.compaction is None:
            return laid
        binding = await model.bound(Wanted(answers_only=True))
        return replace(laid, compaction=replace(laid.compaction, binding=binding))

    return await bind_and_lay_out(
        work,
        served.toolset,
        read_tools,
        lay_out,
        (request.input, request.instructions, request.tools, request.tool_choice, form),
        limit=request.max_tool_calls,
        conversation=past.session or session,
        finish=finish,
    )
