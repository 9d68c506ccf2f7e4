"""The body of POST /v1/chat/completions: the fields that are served, and those that are refused by name.

Takes decoded JSON. Returns a frozen `CreateChatCompletion`, or raises a 400 that names the field and the
remedy. Accepts unknown fields, but never ignores an unserved field that would change the answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import (
    SAMPLERS_NOT_SERVED,
    Body,
    Boolean,
    Effort,
    Integer,
    NotServed,
    Verbosity,
    read_body,
)
from gpt_oss_server.http.shared_fields import (
    ChoiceFields,
    GenerationFields,
    TurnFields,
    check_metadata,
    check_stops,
)
from gpt_oss_server.turns.beams import check_best_of

_EXAMPLE = '{"messages": [{"role": "user", "content": "Hello"}]}'


class TemplateOptions(Body):
    """The `chat_template_kwargs` that Harmony's system message can state, under all their names."""

    reasoning_effort: Effort | None = None
    identity: str | None = None
    model_identity: str | None = None
    date: str | None = None
    current_date: str | None = None
    builtin_tools: list[Literal["browser", "python"]] | None = None


class CreateChatCompletion(ChoiceFields, TurnFields, GenerationFields):
    """A request for a chat completion. Every field may be left out except `messages`."""

    messages: list[Any]
    functions: list[dict[str, Any]] | None = None
    function_call: str | dict[str, Any] | None = None
    web_search_options: dict[str, Any] | None = None
    max_tokens: Annotated[Integer, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[Integer, Field(ge=1)] | None = None
    truncate_prompt_tokens: Annotated[Integer, Field(ge=-1)] | None = None
    logprobs: Boolean | None = None
    reasoning_effort: Effort | None = None
    include_reasoning: Boolean | None = None
    preamble_field: Literal["content", "reasoning"] | None = None
    verbosity: Verbosity | None = None
    response_format: dict[str, Any] | None = None
    chat_template_kwargs: TemplateOptions | None = None
    add_generation_prompt: Boolean | None = None
    continue_final_message: Boolean | None = None
    response_prefix: str | None = None

    @property
    def template(self) -> TemplateOptions:
        return self.chat_template_kwargs or TemplateOptions()

    @property
    def effort(self) -> Effort | None:
        nested = self.reasoning.effort if self.reasoning else None
        return self.reasoning_effort or nested or self.template.reasoning_effort

    def preamble_place(self, default: str) -> str:
        """The field for preambles; where the request wants JSON, `content` holds nothing else."""
        return self.preamble_field or ("reasoning" if self.format_type != "text" else default)

    @property
    def format_type(self) -> Any:
        return (self.response_format or {}).get("type", "text")

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def scores(self) -> int | None:
        """The number of alternatives for each token's log-probability; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def allows_parallel_calls(self) -> bool:
        """False unless the request allows them; `functions` has room for one call."""
        return self.parallel_tool_calls is True and self.functions is None

    @property
    def begin_param(self) -> str:
        """The field that begins the answer, if any does."""
        return "response_prefix" if self.response_prefix is not None else "continue_final_message"

    @property
    def offers_tools(self) -> bool:
        return "none" not in (self.tool_choice, self.function_call)


_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    "audio": (lambda v: False, "This model writes text only."),
    "modalities": (lambda v: v == ["text"], "This model writes text only."),
    "moderation": (lambda v: False, "Leave it out."),
    "documents": (lambda v: not v, "Put the documents' text into a message."),
    "chat_template": (lambda v: False, "Prompts are always in the Harmony format."),
    "prompt": (lambda v: False, "Send `messages`, or use /v1/completions."),
    "input": (lambda v: False, "This is a field of the Responses API; send `messages`."),
    "instructions": (lambda v: False, "This is a field of the Responses API; send a system message."),
    "max_output_tokens": (lambda v: False, "Use max_completion_tokens."),
}


def parse_request(body: object) -> CreateChatCompletion:
    """The validated body; raises a 400 that names the fault."""
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
            "`continue_final_message` and `add_generation_prompt` exclude each other: the first continues an "
            "answer, the second starts one.",
            param="add_generation_prompt",
        )
    if request.add_generation_prompt is False and not request.continue_final_message:
        raise InvalidRequest(
            "`add_generation_prompt` is false, so there is nothing to generate. Set continue_final_message "
            "to continue the last message, or leave it out.",
            param="add_generation_prompt",
        )
    return request
