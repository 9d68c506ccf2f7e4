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
from gpt_oss_server.items.conversation import Conversation
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


def prepare(
    request: CreateResponse,
    past: Past,
    tools: RequestTools,
    hosted: HostedTools,
    work: Work,
    context: int,
    *,
    compacts: bool = False,
    counts: bool = False,
    begun: str | None = None,
) -> PreparedResponse:
    """With `compacts`, the conversation is only compacted, as with a compaction_trigger.

    With `counts`, only the prompt's length is determined, which may exceed every context. The answer goes on
    from the text with which it has `begun`.
    """
    if request.truncation != "auto":
        form = request.text.format if request.text else None
        parts = (request.input, request.instructions, request.tools, form)
        check_can_fit(context, "input", *parts)
    conversation = read_input(
        request.input,
        work.kinds,
        work.model.renderer,
        work.ids,
        recipients=past.recipients,
        approvals=past.approvals,
        results=past.results,
        servers=hosted.servers.names,
        sealer=work.keep.sealer,
        leads=not past.history,
        tools=tools.of_items,
    )
    resume_programs(conversation)
    waiting = unanswered(past.history, work.model.renderer)
    earlier = without_cut_results(past.history, waiting, conversation.answered, work.model.renderer)
    history = since_compaction((*earlier, *conversation.segments))
    if not history:
        raise InvalidRequest.at("input", "is empty: send at least one message.")
    check_answered(past.recipients, waiting, conversation.answered)
    preparing = _Preparing(
        request, past, tools, hosted, work, context, conversation, counts=counts, begun=begun
    )
    if compacts or conversation.compacts:
        return preparing.compacting(history, alone=True)
    whole = preparing.layout(history)
    if preparing.threshold is not None and whole.length >= preparing.threshold:
        return preparing.compacting(history, alone=False)
    return preparing.ready(history, tuple(conversation.segments), whole)


class _Preparing:
    """A request whose input has been read."""

    def __init__(
        self,
        request: CreateResponse,
        past: Past,
        tools: RequestTools,
        hosted: HostedTools,
        work: Work,
        context: int,
        conversation: Conversation,
        *,
        counts: bool,
        begun: str | None,
    ) -> None:
        self._counts = counts
        renderer = work.model.renderer
        self._begun = () if begun is None else tuple(renderer.answer(begun).tokens[len(renderer.cue) : -1])
        self._request = request
        self._past = past
        self._tools = tools
        self._hosted = hosted
        self._work = work
        self._model = work.model
        self._context = context
        self._conversation = conversation
        form = request.text.format if request.text else None
        self._answer = requested_answer(request.forms, form, "text.format")
        self._effort = conversation.effort or request.effort or work.model.settings.default_reasoning_effort
        self._thinking = thinking_of(self._effort, request.reasoning_budget, work.model.settings)
        self._all_reasoning = request.reasoning_context == "all_turns"
        self._head = Head.of(
            work.model,
            self._thinking,
            tools,
            hosted,
            date=work.date(),
            instructions=with_verbosity(request.instructions, request.verbosity),
            formats=self._answer.declared,
        )

    @property
    def threshold(self) -> int | None:
        """The prompt length at which the conversation is compacted; None if it never is."""
        latest = self._context - self._context // SHARE
        wanted = [entry.compact_threshold or latest for entry in self._request.context_management or ()]
        return min([latest, *wanted]) if wanted else None

    def layout(self, history: tuple[Segment, ...]) -> Layout:
        """The prompt of the whole history, even if it exceeds the context."""
        return self._head.layout(history, all_reasoning=self._all_reasoning)

    def ready(
        self, history: tuple[Segment, ...], own: tuple[Segment, ...], whole: Layout
    ) -> PreparedResponse:
        """`own`: the segments that this request adds. `whole`: the prompt of the whole history."""
        request = self._request
        layout, history = fitted_layout(
            self._head,
            history,
            whole=whole,
            context=self._context - len(self._begun),
            truncates=request.truncation == "auto",
            answer=request.max_output_tokens,
            all_reasoning=self._all_reasoning,
            param="input",
        )
        self._hosted.resume_from(history, self._model.encoding)
        prompt = () if self._counts else tuple(layout.tokens())
        return self._prepared(prompt, layout.length, history, own, request.max_output_tokens)

    def compacting(self, history: tuple[Segment, ...], *, alone: bool) -> PreparedResponse:
        prompt = summary_prompt(history, self._head, self._context)
        own = tuple(self._conversation.segments)
        room = summary_limit(history, self._context)
        limit = self._request.max_output_tokens if alone else None  # otherwise it bounds the answer
        prepared = self._prepared(prompt, len(prompt), history, own, min(room, limit or room))

        def after_compaction(compacted: tuple[Segment, ...]) -> PreparedResponse:
            remaining = since_compaction((*history, *compacted))
            return self.ready(remaining, (*own, *compacted), self.layout(remaining))

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
            user_messages=user_messages_in(history, self._model.encoding, self.threshold or self._context),
            alone=alone,
            limits=self._model.limits,
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
        request, tools, hosted = self._request, self._tools, self._hosted
        read = self._conversation
        parallel = request.allows_parallel_calls
        wanted = wanted_of(request.tool_choice, self._answer, tools, hosted, parallel=parallel)
        approved = tuple((call.recipient, call.arguments) for call in read.approved)
        prefill = self._begun
        if not (prefill or approved):
            prefill = begun_call(wanted, self._model.info, self._model.renderer)
        length += len(self._begun)
        return PreparedResponse(
            request=request,
            prompt=prompt,
            prefill=prefill,
            length=length,
            sampling=sampling_of(
                request, self._model, self._work.caller, prompt=length, limit=limit, context=self._context
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
            past=self._past,
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

    `context` takes the place of the model's; `how` is passed on to `prepare`.
    """
    model = work.model
    form = request.text.format if request.text else None
    judging = moderated(request.moderation, request.input, work.caller, served.settings, served.judge)

    def read_tools() -> RequestTools:
        offered = request.tool_choice != "none"
        return tools_of(work.kinds, request.tools, past.history, request.input, offered=offered)

    def lay_out(tools: RequestTools, hosted: HostedTools) -> PreparedResponse:
        laid = prepare(request, past, tools, hosted, work, context or model.info.context_length, **how)
        return replace(laid, moderated=judging)

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
