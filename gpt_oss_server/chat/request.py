"""The body of POST /v1/chat/completions: what is understood, and what is refused by name.

In: decoded JSON. Out: a frozen `CreateChatCompletion`, or a 400 that names the field and says what to do.
Unknown fields are accepted. A field that would change the answer and is not served is never passed over in
silence.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.choices import MAX_CHOICES, Stop, StreamOptions, check_stops
from gpt_oss_server.http.fields import (
    SAMPLERS_NOT_SERVED,
    Bias,
    Body,
    Boolean,
    Budget,
    Effort,
    Integer,
    NotServed,
    Number,
    Penalty,
    Priority,
    Salt,
    Seed,
    Share,
    Temperature,
    Verbosity,
    check_metadata,
    read_body,
)
from gpt_oss_server.turns.beams import check_best_of

_EXAMPLE = '{"messages": [{"role": "user", "content": "Hello"}]}'


class Reasoning(Body):
    effort: Effort | None = None
    max_tokens: Budget | None = None


class TemplateOptions(Body):
    """`chat_template_kwargs`: those that Harmony's system message has a place for, by any of their names."""

    reasoning_effort: Effort | None = None
    identity: str | None = None
    model_identity: str | None = None
    date: str | None = None
    current_date: str | None = None
    builtin_tools: list[Literal["browser", "python"]] | None = None


class CreateChatCompletion(Body):
    """A request for a chat completion. Every field may be left out except `messages`."""

    messages: list[Any]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: Boolean | None = None
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    max_tool_calls: Annotated[Integer, Field(ge=1)] | None = None
    n: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = None
    best_of: Annotated[Integer, Field(ge=1)] | None = None
    use_beam_search: Boolean | None = None
    length_penalty: Number | None = None
    stop: Stop = None
    include_stop_str_in_output: Boolean | None = None
    max_tokens: Annotated[Integer, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[Integer, Field(ge=1)] | None = None
    truncate_prompt_tokens: Annotated[Integer, Field(ge=-1)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Annotated[Integer, Field(ge=-1)] | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Bias | None = None
    cache_salt: Salt | None = None
    priority: Priority | None = None
    logprobs: Boolean | None = None
    top_logprobs: Annotated[Integer, Field(ge=0, le=20)] | None = None
    prompt_logprobs: Annotated[Integer, Field(ge=0, le=20)] | None = None
    return_tokens_as_token_ids: Boolean | None = None
    return_token_ids: Boolean | None = None
    reasoning_effort: Effort | None = None
    reasoning: Reasoning | None = None
    thinking_token_budget: Budget | None = None
    include_reasoning: Boolean | None = None
    preamble_field: Literal["content", "reasoning"] | None = None
    verbosity: Verbosity | None = None
    response_format: dict[str, Any] | None = None
    chat_template_kwargs: TemplateOptions | None = None
    add_generation_prompt: Boolean | None = None
    continue_final_message: Boolean | None = None
    response_prefix: str | None = None
    echo: Boolean | None = None
    stream: Boolean | None = None
    stream_options: StreamOptions | None = None
    metadata: dict[str, Any] | None = None
    store: Boolean | None = None
    service_tier: str | None = None
    user: str | None = None

    @property
    def debug(self) -> bool:
        return bool((self.metadata or {}).get("__debug"))

    @property
    def template(self) -> TemplateOptions:
        return self.chat_template_kwargs or TemplateOptions()

    @property
    def effort(self) -> Effort | None:
        asked = self.reasoning.effort if self.reasoning else None
        return self.reasoning_effort or asked or self.template.reasoning_effort

    @property
    def reasoning_budget(self) -> int | None:
        asked = self.reasoning.max_tokens if self.reasoning else None
        return asked if self.thinking_token_budget is None else self.thinking_token_budget

    def preamble_place(self, default: str) -> str:
        """The field that preambles go to; where JSON is asked for, `content` is nothing but that."""
        return self.preamble_field or ("reasoning" if self.format_type != "text" else default)

    @property
    def format_type(self) -> Any:
        return (self.response_format or {}).get("type", "text")

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def scores(self) -> int | None:
        """How many alternatives each token's log-probability comes with; None: there are none."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def counts_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)

    @property
    def allows_parallel_calls(self) -> bool:
        """Only where it is asked for; `functions` has a place for one call."""
        return self.parallel_tool_calls is True and self.functions is None

    @property
    def offers_tools(self) -> bool:
        return "none" not in (self.tool_choice, self.function_call)


_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    "audio": (lambda v: False, "This model writes text only."),
    "modalities": (lambda v: v == ["text"], "This model writes text only."),
    "moderation": (lambda v: False, "Leave it out."),
    "documents": (lambda v: not v, "Put the documents' text into a message."),
    "chat_template": (lambda v: False, "Prompts are in the Harmony format, always."),
    "prompt": (lambda v: False, "Send `messages`, or use /v1/completions."),
    "input": (lambda v: False, "This is a field of the Responses API; send `messages`."),
    "instructions": (lambda v: False, "This is a field of the Responses API; send a system message."),
    "max_output_tokens": (lambda v: False, "Use max_completion_tokens."),
}


def parse_request(body: object) -> CreateChatCompletion:
    """Validate a body, or say in one sentence what is wrong with it."""
    request = read_body(body, CreateChatCompletion, _NOT_SERVED, _EXAMPLE)
    check_stops(request.stops)
    check_metadata(request.metadata)
    check_best_of(request)
    if not request.messages:
        raise InvalidRequest("`messages` is empty: send at least one message.", param="messages")
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest("`top_logprobs` needs `logprobs` to be true.", param="top_logprobs")
    if request.tools is not None and request.functions is not None:
        raise InvalidRequest("`functions` is the old form of `tools`: send one of them.", param="functions")
    if request.continue_final_message and request.add_generation_prompt:
        raise InvalidRequest(
            "`continue_final_message` and `add_generation_prompt` exclude each other: an answer is continued "
            "or begun.",
            param="add_generation_prompt",
        )
    if request.add_generation_prompt is False and not request.continue_final_message:
        raise InvalidRequest(
            "`add_generation_prompt` is false, so there is nothing to generate. Set continue_final_message "
            "to go on with the last message, or leave it out.",
            param="add_generation_prompt",
        )
    return request
