"""Fields that more than one API takes, under the same names and with the same bounds.

Takes decoded JSON. Returns validated fields. Plain completions take `GenerationFields` and `ChoiceFields`,
Responses takes `GenerationFields` and `TurnFields`, and Chat Completions takes all three.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, Effort, Integer, Number

MAX_CHOICES = 128  # OpenAI's limit
MAX_STOPS = 64  # OpenAI's limit is four

Temperature = Annotated[Number, Field(ge=0, le=2)]
Share = Annotated[Number, Field(ge=0, le=1)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
Seed = Annotated[Integer, Field(ge=-(2**63), lt=2**63)]
Bias = dict[str, Annotated[Number, Field(ge=-100, le=100)]]
Salt = Annotated[str, Field(min_length=1, max_length=1_024)]
Priority = Annotated[Integer, Field(ge=-(2**31), lt=2**31)]
Budget = Annotated[Integer, Field(ge=0)]  # reasoning tokens
Alternatives = Annotated[Integer, Field(ge=0, le=20)]  # per log-probability


class GenerationFields(Body):
    """How to sample, how the engine schedules and caches the request, and how to send the answer."""

    model: str | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[Integer, Field(ge=-1)] | None = None  # -1: all tokens
    min_p: Share | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Bias | None = None
    cache_salt: Salt | None = None
    priority: Priority | None = None
    stream: Boolean | None = None
    user: str | None = None


class StreamOptions(Body):
    include_usage: Boolean | None = None
    continuous_usage_stats: Boolean | None = None


class ChoiceFields(Body):
    """Several choices for one prompt, each of which ends at a stop string."""

    n: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[Integer, Field(ge=1)] | None = None
    use_beam_search: Boolean | None = None
    length_penalty: Annotated[Number, Field(ge=-10, le=10)] | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: Boolean | None = None
    prompt_logprobs: Alternatives | None = None
    return_tokens_as_token_ids: Boolean | None = None
    return_token_ids: Boolean | None = None
    echo: Boolean | None = None
    stream_options: StreamOptions | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def counts_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)


class Reasoning(Body):
    effort: Effort | None = None
    max_tokens: Budget | None = None


class TurnFields(Body):
    """A turn of the model: its tools, its reasoning, and the fields that the response keeps."""

    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: Boolean | None = None
    max_tool_calls: Annotated[Integer, Field(ge=1)] | None = None
    reasoning: Reasoning | None = None
    thinking_token_budget: Budget | None = None
    top_logprobs: Alternatives | None = None
    metadata: dict[str, Any] | None = None
    store: Boolean | None = None
    service_tier: str | None = None

    @property
    def reasoning_budget(self) -> int | None:
        budget = self.reasoning.max_tokens if self.reasoning else None
        return budget if self.thinking_token_budget is None else self.thinking_token_budget

    @property
    def debug(self) -> bool:
        return bool((self.metadata or {}).get("__debug"))


def check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"`stop` may have {MAX_STOPS} strings at most.", param="stop")
    if "" in stops:
        raise InvalidRequest("`stop` contains an empty string, which would stop immediately.", param="stop")


def check_metadata(metadata: dict[str, Any] | None) -> None:
    for key, value in (metadata or {}).items():
        if not isinstance(value, str) and key != "__debug":
            raise InvalidRequest(f"`metadata.{key}` must be a string.", param=f"metadata.{key}")
