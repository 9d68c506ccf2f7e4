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

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.biases import logit_bias
from gpt_oss_server.content.tools import RequestTools
from gpt_oss_server.errors import ContextLengthExceeded, UnsupportedField
from gpt_oss_server.harmony.declarations import Declared, FunctionTool, ResponseFormat, ToolNamespace
from gpt_oss_server.harmony.encoding import MESSAGE
from gpt_oss_server.harmony.history import Layout, Segment, are_kept
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.json_values import is_larger
from gpt_oss_server.models.limits import default_output_limit
from gpt_oss_server.models.model import Model
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.turns.stops import least_tokens, stop_ids
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
_VERBOSITY = {"low": "Keep the final answer short.", "high": "Make the final answer thorough and detailed."}

_Opened = tuple[list[Segment], list[Segment]]  # the head of a prompt, and the rest of the history
_ALL_TOKENS = -1  # as `top_k`
_ENGINE_ONLY = ("cache_salt", "priority")  # no answer depends on these
_MOST_CHARACTERS = 16  # per token, as the mean of a long text; English has 4 to 5
_LEAST_MESSAGE = 4  # tokens
_READ_APART = frozenset({"logit_bias", "logprobs", "ignored_stop_ids", "alternatives"})
_OWN_NAMES = SAMPLING_FIELDS - _READ_APART
_DEFAULTED = ("temperature", "top_p", "top_k", "repetition_penalty")  # by the checkpoint
_FIELD_OF = {"ignored_stop_ids": "ignore_eos"}
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


def thinking_of(effort: str | None, budget: int | None, settings: Settings) -> Thinking:
    """Those of the request; without a budget of its own, the smaller of the effort's and the operator's."""
    thinking = _EFFORTS[effort or settings.default_reasoning_effort]
    if budget is not None:
        return replace(thinking, budget=budget)
    known = [budget for budget in (thinking.budget, settings.default_reasoning_budget) if budget is not None]
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

    @classmethod
    def of(
        cls,
        model: Model,
        thinking: Thinking,
        tools: RequestTools,
        hosted: HostedTools,
        *,
        date: str,
        identity: str | None = None,
        instructions: str | None = None,
        formats: Sequence[ResponseFormat] = (),
    ) -> Head:
        system = model.renderer.system(
            effort=thinking.effort,
            date=date,
            identity=identity or model.settings.identity,
            builtin_tools=hosted.in_system_message,
            function_tools=bool(tools.functions),
        )
        namespaces = (*tools.namespaces, *hosted.in_developer_message)
        return cls(model.renderer, system, instructions, tools.functions, namespaces, formats)

    def opened(self, history: Sequence[Segment]) -> _Opened:
        declared = Declared(self.instructions, self.tools, self.namespaces, self.response_formats)
        return self.renderer.opening(self.system, history, declared)

    def layout(self, history: Sequence[Segment], *, all_reasoning: bool = False) -> Layout:
        return self.renderer.layout(*self.opened(history), all_reasoning=all_reasoning)


def fitted_layout(
    head: Head,
    history: tuple[Segment, ...],
    *,
    whole: Layout | None = None,
    context: int,
    most: int | None = None,
    truncates: bool = False,
    cuts: bool = False,
    answer: int | None = None,
    all_reasoning: bool = False,
    param: str,
) -> tuple[Layout, tuple[Segment, ...]]:
    """Return the prompt, and the part of the history that it contains.

    `whole` is the prompt of the whole history, if the caller has it already. A history may be a hundred times
    as long as the context, so that nothing is joined before its length is known.

    If `truncates`, the oldest turns are dropped until the prompt has at most `most` tokens and leaves room
    for an answer: `answer` tokens, or an eighth of the context, as far as the newest turn allows. If it
    `cuts` too, the longest texts of a newest turn that is too long lose their beginnings. The prompt contains
    the reasoning of earlier turns only with `all_reasoning`.
    """
    room = context - 1 if most is None else min(context - 1, most)
    prompt = head.layout(history, all_reasoning=all_reasoning) if whole is None else whole
    left = context - min(answer or context // _ANSWER_SHARE, context // 2)
    if truncates and prompt.length > min(room, left):
        history = _newest_turns(history, min(room, left) - len(head.renderer.cue), head.opened, all_reasoning)
        prompt = head.layout(history, all_reasoning=all_reasoning)
    if cuts and prompt.length > room:
        history = _cut(history, prompt.length - min(room, left))
        prompt = head.layout(history, all_reasoning=all_reasoning)
    if prompt.length > room:
        raise ContextLengthExceeded(_too_long(prompt.length, context, most), param=param)
    return prompt, history


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
    starts = [index for index, segment in enumerate(history) if segment.role == "user"][1:]
    developers = [index for index, segment in enumerate(history) if segment.role == "developer"]
    lengths = _lengths_from(history, all_reasoning)
    head, leading = 0, -1
    for start in starts:
        if lengths[start] + head - _SHORTER > room:
            continue
        if leading != bisect_left(developers, start):
            leading = bisect_left(developers, start)
            top, rest = opened([history[index] for index in developers[:leading]])
            head = _length(top) + _length(rest)
        if lengths[start] + head <= room:
            return _from(history, start)
    return _from(history, starts[-1]) if starts else history


def _from(history: Sequence[Segment], start: int) -> tuple[Segment, ...]:
    return (*(s for s in history[:start] if s.role == "developer"), *history[start:])


def _cut(history: tuple[Segment, ...], excess: int) -> tuple[Segment, ...]:
    """Without the beginnings of the longest texts that users and tools wrote, `excess` tokens in all."""
    begins = {
        at: segment.tokens.index(MESSAGE) + 1
        for at, segment in enumerate(history)
        if segment.role in ("user", "tool")
    }
    lengths = {at: len(history[at].tokens) - 1 - begin for at, begin in begins.items()}
    cut = list(history)
    for at in sorted(lengths, key=lengths.__getitem__, reverse=True):
        tokens, begin, less = cut[at].tokens, begins[at], min(excess, lengths[at])
        cut[at] = replace(cut[at], tokens=(*tokens[:begin], *tokens[begin + less :]))
        excess -= less
    return tuple(cut)


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
    return f"What cannot be left out makes a prompt of {prompt} tokens, and the request allows {most}."


class SamplingRequest(Protocol):
    """A request of any API. Its sampling fields have the names of the fields of `Sampling`."""

    @property
    def model(self) -> str | None: ...
    @property
    def scores(self) -> int | None:
        """The number of alternatives for each log-probability; None: no log-probabilities."""
        ...

    @property
    def logit_bias(self) -> Mapping[str, Any] | None: ...
    @property
    def min_tokens(self) -> int | None: ...
    @property
    def ignore_eos(self) -> bool | None: ...
    @property
    def stop_token_ids(self) -> Sequence[int] | None: ...


def sampling_of(
    request: SamplingRequest,
    model: Model,
    caller: Caller,
    *,
    prompt: int,
    limit: int | None,
    context: int | None = None,
) -> Sampling:
    """How to sample after a prompt of `prompt` tokens; `limit` is the request's own, if any.

    `context` takes the place of the model's.
    """
    info, settings = model.info, model.settings
    fields = _honoured_fields(request, info)
    if getattr(request, "priority", None) and not settings.allow_priority:
        raise UnsupportedField.at(
            "priority",
            "would let this request start before those of others, which this server does not "
            "allow. Leave it out, or start the server with --allow-priority.",
        )
    fields |= {name: value for name in _ENGINE_ONLY if (value := getattr(request, name, None)) is not None}
    if caller.priority:
        fields["priority"] = caller.priority
    if (prediction := getattr(request, "prediction", None)) is not None:
        text = prediction.text[: info.context_length * _MOST_CHARACTERS]  # no output is longer
        fields["predicted"] = model.renderer.answer(text).tokens
    fields["cache_salt"] = cache_salt(caller.owner, fields.get("cache_salt"))
    fields = {**{name: getattr(info.defaults, name) for name in _DEFAULTED}, **fields}
    limits = [limit or default_output_limit(info, settings), settings.max_output_tokens_cap]
    most = min([(context or info.context_length) - prompt, *(limit for limit in limits if limit is not None)])
    least = least_tokens(request.min_tokens or 0, limit, most)
    stops = info.defaults.stop_token_ids | stop_ids(request.stop_token_ids or (), info.vocab_size)
    own = {**fields, "min_tokens": least, "stop_token_ids": stops}
    labels = caller.labels_with(getattr(request, "prompt_cache_key", None))
    return Sampling(max_tokens=most, owner=caller.client, labels=labels, **own)


def cache_salt(owner: str, salt: str | None) -> str | None:
    """No timing of a prompt shows what another owner's contained. The first word names the owner."""
    return f"{owner} {salt or ''}" if owner else salt


def _honoured_fields(request: SamplingRequest, info: EngineInfo) -> dict[str, Any]:
    """The request's fields that the engine honours, under the names of `Sampling`."""
    values = {name: getattr(request, name, None) for name in _OWN_NAMES}
    fields: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if fields.get("top_k") == _ALL_TOKENS:
        fields["top_k"] = 0  # which every engine supports
    bias = logit_bias(request.logit_bias, info.vocab_size)
    if bias:
        fields["logit_bias"] = bias
    if request.ignore_eos:
        fields["ignored_stop_ids"] = info.defaults.stop_token_ids
    logprobs = request.scores
    if logprobs is None and getattr(request, "debug", False) and "logprobs" in info.honours:
        logprobs = 0  # debugging shows the scores of all tokens
    if logprobs is not None:
        fields["logprobs"] = logprobs
    for name in ignored_fields(request, info):
        del fields[name]
    for name in fields:
        if name not in info.honours and fields[name] != getattr(Sampling(), name):
            field = _FIELD_OF.get(name, name)
            raise UnsupportedField.at(field, f"is not served by the model {info.name!r}. Leave it out.")
    return fields


def ignored_fields(request: SamplingRequest, info: EngineInfo) -> list[str]:
    """The request's sampling fields without effect on this engine, in the order of the alphabet."""
    neutral = Sampling()
    values = {name: getattr(request, name, None) for name in info.ignores} | {"logprobs": request.scores}
    if values.get("top_k") == _ALL_TOKENS:
        del values["top_k"]
    fields = {name for name, value in values.items() if value is not None and value != getattr(neutral, name)}
    return sorted(fields & info.ignores)


def begun_call(wanted: Wanted, info: EngineInfo, renderer: Renderer) -> tuple[int, ...]:
    """The header of the only call that the turn may make, where the engine would not be bound to it."""
    if not (info.takes_begun_calls and wanted.must_call and wanted.only is not None):
        return ()
    forced = [call for call in wanted.calls if call.recipient in wanted.only]
    if len(wanted.only) != 1 or not forced:  # several tools, or one that runs here
        return ()
    [call] = forced
    written = renderer.call(call.recipient, "", content_type=None if call.raw else "json").tokens
    return tuple(written[len(renderer.cue) : -1])
