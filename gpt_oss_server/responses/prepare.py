"""A request, made ready to run: the exact prompt, how to sample, and what the response will echo.

In: a validated request, what it continues (if anything), the engine's facts and the settings. Out: a
frozen `Prepared`, or an error before anything is generated. Rendering for `POST /render` ends here too, so
what it shows is what the model gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.binding import Binding, Wanted
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.decoder import Recipients
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.prompting import Thinking, fitted_prompt, sampling_of, thinking_of, with_verbosity
from gpt_oss_server.responses.input import Approved, read_input
from gpt_oss_server.responses.past import Past
from gpt_oss_server.responses.request import CreateResponse
from gpt_oss_server.sealing import Sealer
from gpt_oss_server.settings import Settings
from gpt_oss_server.tooling.form import answer_format, wanted_of
from gpt_oss_server.tooling.hosted import HostedTools, known_recipients
from gpt_oss_server.tooling.requested import RequestTools
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
    approved: tuple[Approved, ...]  # calls that the client has just approved
    wanted: Wanted  # of the form of the turn
    binding: Binding = field(default_factory=Binding)  # what that comes to


def prepare(
    request: CreateResponse,
    past: Past,
    tools: RequestTools,
    hosted: HostedTools,
    *,
    info: EngineInfo,
    settings: Settings,
    renderer: Renderer,
    ids: Ids,
    date: str,
    sealer: Callable[[], Sealer],
) -> Prepared:
    functions = tools.functions
    answer = answer_format(request.text.format if request.text else None)
    wanted = wanted_of(request.tool_choice, answer, tools, hosted, parallel=request.allows_parallel_calls)
    conversation = read_input(
        request.input,
        renderer,
        ids,
        recipients=past.recipients,
        approvals=past.approvals,
        sealer=sealer,
    )
    history = (*past.history, *conversation.segments)
    if not history:
        raise InvalidRequest("`input` is empty: send at least one message.", param="input")
    effort = request.effort or settings.default_reasoning_effort
    thinking = thinking_of(effort, request.reasoning_budget, settings)
    head = renderer.system(
        effort=thinking.effort,
        date=date,
        identity=settings.identity,
        builtin_tools=hosted.in_system_message,
        function_tools=bool(functions),
    )
    prompt, history = fitted_prompt(
        renderer,
        head,
        history,
        instructions=with_verbosity(request.instructions, request.verbosity),
        tools=functions,
        namespaces=(*tools.namespaces, *hosted.in_developer_message),
        response_formats=answer.told,
        context=info.context_length,
        truncates=request.truncation == "auto",
        all_reasoning=request.reasoning_context == "all_turns",
        param="input",
    )
    return Prepared(
        request=request,
        prompt=prompt,
        sampling=sampling_of(
            request,
            info,
            settings,
            prompt=len(prompt),
            limit=request.max_output_tokens,
            logprobs=request.scores,
        ),
        recipients=known_recipients(tools, hosted),
        tools=tools,
        effort=effort,
        thinking=thinking,
        history=history,
        own=tuple(conversation.segments),
        items=tuple(conversation.items),
        call_recipients=conversation.recipients,
        hosted=hosted,
        approved=tuple(conversation.approved),
        wanted=replace(wanted, bounds_reasoning=thinking.budget is not None),
    )
