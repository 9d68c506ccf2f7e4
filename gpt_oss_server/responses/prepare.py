"""A request, made ready to run: the exact prompt, how to sample, and what the response will echo.

In: a validated request, the response it continues (if any), the engine's facts and the settings. Out: a
frozen `Prepared`, or an error before anything is generated. Rendering for `POST /render` ends here too, so
what it shows is what the model gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpt_oss_server.errors import ContextLengthExceeded, InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.decoder import Recipients
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import FunctionTool, Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.responses.hosted import HostedTools
from gpt_oss_server.responses.input import Approved, read_input
from gpt_oss_server.responses.request import CreateResponse
from gpt_oss_server.responses.tools import RequestTools
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import StoredResponse
from inference.engine import SAMPLING_FIELDS, ContextOverflow, EngineInfo, Sampling

HarmonyEffort = Literal["low", "medium", "high"]
_EFFORTS: dict[str, HarmonyEffort] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
_VERBOSITY = {
    "low": "Keep the final answer short.",
    "high": "Make the final answer thorough and detailed.",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    request: CreateResponse
    prompt: tuple[int, ...]
    sampling: Sampling
    recipients: Recipients
    tools: RequestTools
    effort: str
    history: tuple[Segment, ...]  # the conversation, this request's input included
    added: int  # how many of those segments this request added
    items: tuple[dict[str, Any], ...]
    call_recipients: dict[str, str]  # call_id → Harmony recipient
    hosted: HostedTools
    approved: tuple[Approved, ...]  # calls that the client has just approved


def prepare(
    request: CreateResponse,
    previous: StoredResponse | None,
    tools: RequestTools,
    hosted: HostedTools,
    *,
    info: EngineInfo,
    settings: Settings,
    renderer: Renderer,
    ids: Ids,
    date: str,
) -> Prepared:
    functions = tools.functions if tools.offered else []
    conversation = read_input(
        request.input,
        renderer,
        ids,
        recipients=previous.recipients if previous else {},
        approvals=previous.approvals if previous else {},
    )
    history = (*(previous.history if previous else ()), *conversation.segments)
    if not history:
        raise InvalidRequest("`input` is empty: send at least one message.", param="input")
    effort = request.effort or settings.default_reasoning_effort
    head = renderer.system(
        effort=_EFFORTS[effort],
        date=date,
        identity=settings.identity,
        builtin_tools=hosted.in_system_message,
        function_tools=bool(functions),
    )
    prompt, history = _prompt(request, head, functions, hosted, history, renderer, info.context_length)
    return Prepared(
        request=request,
        prompt=prompt,
        sampling=_sampling(request, info, settings, len(prompt)),
        recipients=Recipients(frozenset(f.name for f in functions), hosted.recipients),
        tools=tools,
        effort=effort,
        history=history,
        added=min(len(conversation.segments), len(history)),
        items=tuple(conversation.items),
        call_recipients=conversation.recipients,
        hosted=hosted,
        approved=tuple(conversation.approved),
    )


def _prompt(
    request: CreateResponse,
    system: Segment,
    functions: Sequence[FunctionTool],
    hosted: HostedTools,
    history: tuple[Segment, ...],
    renderer: Renderer,
    context: int,
) -> tuple[tuple[int, ...], tuple[Segment, ...]]:
    """The prompt's ids; with truncation "auto" the oldest turns go until there is room for an answer."""
    while True:
        head, rest = renderer.opening(
            system,
            history,
            instructions=_instructions(request),
            tools=functions,
            namespaces=hosted.in_developer_message,
        )
        prompt = renderer.prompt(head, rest)
        if len(prompt) < context:
            return tuple(prompt), history
        shorter = without_oldest_turn(history) if request.truncation == "auto" else None
        if shorter is None:
            raise ContextLengthExceeded(str(ContextOverflow(len(prompt), context)), param="input")
        history = shorter


def without_oldest_turn(history: Sequence[Segment]) -> tuple[Segment, ...] | None:
    """The history without its oldest turn, instructions kept; None when only the newest turn is left."""
    turns = [i for i, segment in enumerate(history) if segment.role == "user"]
    if len(turns) < 2:
        return None
    instructions = tuple(s for s in history[: turns[1]] if s.role == "developer")
    return (*instructions, *history[turns[1] :])


def _instructions(request: CreateResponse) -> str | None:
    parts = [request.instructions, _VERBOSITY.get(request.verbosity or "")]
    return "\n\n".join(part for part in parts if part) or None


def _sampling(request: CreateResponse, info: EngineInfo, settings: Settings, prompt: int) -> Sampling:
    asked = {name: getattr(request, name, None) for name in SAMPLING_FIELDS - {"logit_bias", "logprobs"}}
    given = {name: value for name, value in asked.items() if value is not None}
    if request.logit_bias:
        given["logit_bias"] = _logit_bias(request.logit_bias, info.vocab_size)
    for name in given:
        if name not in info.honours and given[name] != getattr(Sampling(), name):
            raise UnsupportedField(
                f"`{name}` is not served by the model {info.name!r}. Leave it out.", param=name
            )
    given.setdefault("temperature", info.temperature)
    given.setdefault("top_p", info.top_p)
    return Sampling(max_tokens=_limit(request, info, settings, prompt), **given)


def _limit(request: CreateResponse, info: EngineInfo, settings: Settings, prompt: int) -> int:
    room = info.context_length - prompt
    limits = [request.max_output_tokens or settings.default_max_output_tokens, settings.max_output_tokens_cap]
    return min([room, *(limit for limit in limits if limit is not None)])


def _logit_bias(given: dict[str, float], vocab_size: int) -> dict[int, float]:
    bias = {}
    for key, value in given.items():
        if not key.isascii() or not key.isdigit() or int(key) >= vocab_size:
            raise InvalidRequest(
                f"`logit_bias` maps token ids below {vocab_size} to numbers, but {key!r} is none.",
                param="logit_bias",
            )
        bias[int(key)] = value
    return bias
