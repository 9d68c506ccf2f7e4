"""A request's reasoning effort, its prompt within the context, and its sampling, the same for every API.

Takes values of a request, the engine's properties and the settings. Returns a prompt and a `Sampling`, or
raises an error before the engine generates anything. It must not know any API.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal, Protocol

from gpt_oss_server.errors import ContextLengthExceeded, InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.history import Segment, are_kept
from gpt_oss_server.harmony.render import FunctionTool, Renderer, ResponseFormat, ToolNamespace
from gpt_oss_server.http.owner import OWNER
from gpt_oss_server.http.validation import whole_number
from gpt_oss_server.json_values import is_larger
from gpt_oss_server.settings import Settings
from gpt_oss_server.turns.plan import default_output_limit
from inference.engine import SAMPLING_FIELDS, ContextOverflow, EngineInfo, Sampling

HarmonyEffort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Thinking:
    """How much the model reasons: the effort in the prompt, and the budget in tokens (None: no limit)."""

    effort: HarmonyEffort
    budget: int | None = None


_EFFORTS: dict[str, Thinking] = {
    "none": Thinking("low", 0),
    "minimal": Thinking("low", 128),
    "low": Thinking("low"),
    "medium": Thinking("medium"),
    "high": Thinking("high"),
    "xhigh": Thinking("high"),
    "max": Thinking("high"),
}
_VERBOSITY = {
    "low": "Keep the final answer short.",
    "high": "Make the final answer thorough and detailed.",
}

_Opened = tuple[list[Segment], list[Segment]]  # the head of a prompt, and the rest of the history
_ENGINE_ONLY = ("cache_salt", "priority")  # no answer depends on these
_MOST_CHARACTERS = 16  # per token, as the mean of a long text; English has 4 to 5
_LEAST_MESSAGE = 4  # tokens
_ANSWER_SHARE = 8  # an eighth of the context is kept for an answer without a length limit
_SHORTER = 8  # tokens by which a text can shrink when text is appended: line breaks may merge


def check_can_fit(context: int, param: str, *parts: object) -> None:
    """Refuses parts of a request that are hopelessly too long before minutes are spent on encoding them."""
    has_too_many = any(isinstance(part, list) and len(part) * _LEAST_MESSAGE > context for part in parts)
    if has_too_many or is_larger(context * _MOST_CHARACTERS, *parts):
        most = f"{context // _LEAST_MESSAGE:,} entries or {context * _MOST_CHARACTERS:,} characters"
        raise ContextLengthExceeded(
            f"This model's maximum context length is {context} tokens, and the request has more than {most}, "
            "which cannot fit. Send less.",
            param=param,
        )


def thinking_of(effort: str, budget: int | None, settings: Settings) -> Thinking:
    """`budget` is the request's own. Without one, the smaller of the effort's and the operator's applies."""
    thinking = _EFFORTS[effort]
    if budget is not None:
        return replace(thinking, budget=budget)
    known = [each for each in (thinking.budget, settings.default_reasoning_budget) if each is not None]
    return replace(thinking, budget=min(known, default=None))


def with_verbosity(instructions: str | None, verbosity: str | None) -> str | None:
    """Adds the verbosity to the instructions, as Harmony has no field for it."""
    parts = [instructions, _VERBOSITY.get(verbosity or "")]
    return "\n\n".join(part for part in parts if part) or None


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a request's prompts: the system message and the content of the developer message."""

    renderer: Renderer
    system: Segment
    instructions: str | None  # of the request; the history may begin with more
    tools: Sequence[FunctionTool]
    namespaces: Sequence[ToolNamespace]
    response_formats: Sequence[ResponseFormat] = ()

    def opened(self, history: Sequence[Segment]) -> _Opened:
        return self.renderer.opening(
            self.system,
            history,
            instructions=self.instructions,
            tools=self.tools,
            namespaces=self.namespaces,
            response_formats=self.response_formats,
        )

    def prompt(self, history: Sequence[Segment], *, all_reasoning: bool = False) -> list[int]:
        return self.renderer.prompt(*self.opened(history), all_reasoning=all_reasoning)


def fitted_prompt(
    head: Head,
    history: tuple[Segment, ...],
    *,
    whole: Sequence[int] | None = None,
    context: int,
    most: int | None = None,
    truncates: bool = False,
    answer: int | None = None,
    all_reasoning: bool = False,
    param: str,
) -> tuple[tuple[int, ...], tuple[Segment, ...]]:
    """Return the prompt's ids, and the part of the history that they contain.

    `whole` is the prompt of the whole history, if the caller has it already.

    If `truncates`, the oldest turns are dropped until the prompt has at most `most` tokens and leaves room
    for an answer: `answer` tokens, or an eighth of the context, as far as the newest turn allows. The prompt
    contains the reasoning of earlier turns only with `all_reasoning`.
    """
    room = context - 1 if most is None else min(context - 1, most)
    prompt = head.prompt(history, all_reasoning=all_reasoning) if whole is None else whole
    left = context - min(answer or context // _ANSWER_SHARE, context // 2)
    if truncates and len(prompt) > min(room, left):
        history = _newest_turns(history, min(room, left) - len(head.renderer.cue), head.opened, all_reasoning)
        prompt = head.prompt(history, all_reasoning=all_reasoning)
    if len(prompt) > room:
        raise ContextLengthExceeded(_too_long(len(prompt), context, most), param=param)
    return tuple(prompt), history


def _newest_turns(
    history: tuple[Segment, ...],
    room: int,
    opened: Callable[[Sequence[Segment]], _Opened],
    all_reasoning: bool,
) -> tuple[Segment, ...]:
    """As many of the newest turns as fit, at least one. Instructions of dropped turns stay.

    This sums up lengths and renders no prompts, as there may be thousands of turns. The head changes only
    when a dropped turn contains instructions, and hardly ever gets shorter (`_SHORTER` allows for it).
    """
    starts = [place for place, segment in enumerate(history) if segment.role == "user"][1:]
    developers = [place for place, segment in enumerate(history) if segment.role == "developer"]
    lengths = _lengths_from(history, all_reasoning)
    head, leading = 0, -1
    for start in starts:
        if lengths[start] + head - _SHORTER > room:
            continue
        if leading != bisect_left(developers, start):
            leading = bisect_left(developers, start)
            top, rest = opened([history[place] for place in developers[:leading]])
            head = _length(top) + _length(rest)
        if lengths[start] + head <= room:
            return _from(history, start)
    return _from(history, starts[-1]) if starts else history


def _from(history: Sequence[Segment], start: int) -> tuple[Segment, ...]:
    return (*(s for s in history[:start] if s.role == "developer"), *history[start:])


def _lengths_from(history: Sequence[Segment], all_reasoning: bool) -> list[int]:
    """By position: how many tokens of the history from there on the prompt contains."""
    shown = are_kept(history, all_reasoning=all_reasoning)
    lengths = [len(segment.tokens) * is_shown for segment, is_shown in zip(history, shown, strict=True)]
    return list(accumulate(reversed(lengths)))[::-1]


def _length(segments: Sequence[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)


def _too_long(prompt: int, context: int, most: int | None) -> str:
    if prompt >= context or most is None:
        return str(ContextOverflow(prompt, context))
    return f"The newest turn alone makes a prompt of {prompt} tokens, and the request allows at most {most}."


class SamplingRequest(Protocol):
    """A request of any API. Its sampling fields have the names of the fields of `Sampling`."""

    @property
    def logit_bias(self) -> dict[str, float] | None: ...


def sampling_of(
    request: SamplingRequest,
    info: EngineInfo,
    settings: Settings,
    *,
    prompt: int,
    limit: int | None,
    logprobs: int | None = None,
) -> Sampling:
    """How to sample after a prompt of `prompt` tokens; `limit` is the request's own, if any."""
    values = {name: getattr(request, name, None) for name in SAMPLING_FIELDS - {"logit_bias", "logprobs"}}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if given.get("top_k") == -1:  # all tokens, which every engine supports
        del given["top_k"]
    if request.logit_bias:
        given["logit_bias"] = _logit_bias(request.logit_bias, info.vocab_size)
    if logprobs is not None:
        given["logprobs"] = logprobs
    _check_honoured(given, info)
    if getattr(request, "priority", None) and not settings.allow_priority:
        raise UnsupportedField(
            "`priority` would let this request start before those of others, which this server does not "
            "allow. Leave it out, or start the server with --allow-priority.",
            param="priority",
        )
    given |= {name: value for name in _ENGINE_ONLY if (value := getattr(request, name, None)) is not None}
    given.setdefault("temperature", info.temperature)
    given.setdefault("top_p", info.top_p)
    limits = [limit or default_output_limit(info, settings), settings.max_output_tokens_cap]
    most = min([info.context_length - prompt, *(limit for limit in limits if limit is not None)])
    return Sampling(max_tokens=most, owner=OWNER.get(), **given)


def _check_honoured(given: Mapping[str, Any], info: EngineInfo) -> None:
    for name in given:
        if name not in info.honours and given[name] != getattr(Sampling(), name):
            raise UnsupportedField(
                f"`{name}` is not served by the model {info.name!r}. Leave it out.", param=name
            )


def _logit_bias(given: Mapping[str, float], vocab_size: int) -> dict[int, float]:
    bias = {}
    for key, value in given.items():
        token = whole_number(key)
        if token is None or token >= vocab_size:
            raise InvalidRequest(
                f"`logit_bias` maps token ids below {vocab_size} to numbers, but {key!r:.60} is no such id.",
                param="logit_bias",
            )
        bias[token] = value
    return bias
