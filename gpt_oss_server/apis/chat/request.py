"""The body of POST /v1/chat/completions: the fields that are served, and those that are refused by name.

Takes decoded JSON. Returns a frozen `CreateChatCompletion`, or raises a 400 that names the field and the
remedy. Accepts unknown fields, but never ignores a known field that would change the answer.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.content.biases import check_bias
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http import shared_fields as shared
from gpt_oss_server.http.fields import (
    Body,
    Boolean,
    Effort,
    Integer,
    Verbosity,
    optional,
    read_body,
    required,
)
from gpt_oss_server.http.generation_config import with_generation_config
from gpt_oss_server.http.unserved import (
    EMPTY,
    FALSE,
    NEVER,
    SAMPLERS_NOT_SERVED,
    TEMPLATES_NOT_SERVED,
    TRUE,
    NotServed,
    only,
)

_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    **TEMPLATES_NOT_SERVED,
    "audio": (NEVER, "This model writes text only."),
    "modalities": (only(["text"]), "This model writes text only."),
    "functions": (EMPTY, "Use tools."),
    "function_call": (only("auto", "none"), "Use tool_choice."),
    "documents": (EMPTY, "Put the documents' text into a message."),
    "data_sources": (EMPTY, "Put the documents' text into a message."),
    "echo": (FALSE, "The client has the beginning that it gave."),
    "prompt_logprobs": (NEVER, "Use /v1/completions."),
    "truncation_side": (only("left"), "truncate_prompt_tokens drops the oldest turns."),
    "skip_special_tokens": (TRUE, 'Send metadata {"__debug": true} to see special tokens.'),
    "think": (NEVER, "Use reasoning_effort."),
    "format": (EMPTY, "Use response_format."),
    "response_prefix": (NEVER, "Send a last assistant message and continue_final_message."),
    "prompt": (NEVER, "Send `messages`, or use /v1/completions."),
    "input": (NEVER, "This is a field of the Responses API; send `messages`."),
    "instructions": (NEVER, "This is a field of the Responses API; send a system message."),
    "system": (NEVER, "Send a system message."),
    "text": (EMPTY, "This is a field of the Responses API; use response_format and verbosity."),
    "previous_response_id": (NEVER, "This is a field of the Responses API; send all messages."),
    "conversation": (NEVER, "This is a field of the Responses API; send all messages."),
    "max_output_tokens": (NEVER, "Use max_completion_tokens."),
}
_EXAMPLE = '{"messages": [{"role": "user", "content": "Hello"}]}'


class TemplateOptions(Body):
    """The `chat_template_kwargs` that Harmony's system message can state."""

    reasoning_effort: Effort | None = optional("The same as the request's `reasoning_effort`.")
    model_identity: str | None = optional("Replaces the first line of the system message.")
    date: str | None = optional("Replaces the date in the system message.")
    builtin_tools: list[Literal["browser", "python"]] | None = optional(
        "Offers the browser or python of this server."
    )
    enable_thinking: Boolean | None = optional("With false, the effort is `none`.")


class Thinking(Body):
    """Reasoning as Anthropic's API and those like it switch it."""

    type: Literal["enabled", "disabled", "adaptive"] = required(
        "With `disabled`, the effort is `none`; `enabled` and `adaptive` leave it as it is."
    )
    budget_tokens: shared.Budget | None = optional("The most tokens of reasoning.")


class CreateChatCompletion(
    shared.ChoiceFields, shared.TurnFields, shared.FormFields, shared.GenerationFields
):
    """A request for a chat completion. Every field may be left out except `messages`."""

    not_served: ClassVar[NotServed] = _NOT_SERVED

    messages: list[Any] = required("The conversation so far.")
    web_search_options: dict[str, Any] | None = optional("Offers the browser of this server.")
    max_tokens: Annotated[Integer, Field(ge=1)] | None = optional("The old name of `max_completion_tokens`.")
    max_completion_tokens: Annotated[Integer, Field(ge=1)] | None = optional(
        "The most tokens of output, reasoning included."
    )
    truncate_prompt_tokens: Annotated[Integer, Field(ge=-1)] | None = optional(
        "Drops the oldest turns, then the beginnings of the newest one's longest texts, until the prompt has "
        "at most this many tokens; -1: until it fits."
    )
    logprobs: Boolean | None = optional("Each token of `content` gets its log-probability.")
    reasoning_effort: Effort | None = optional(
        "How much the model reasons. Left out: `--default-reasoning-effort`."
    )
    include_reasoning: Boolean | None = optional("With false, the answer leaves out the reasoning.")
    enable_thinking: Boolean | None = optional("With false, the effort is `none`.")
    thinking: Thinking | None = optional("Reasoning as Anthropic's API has it.")
    verbosity: Verbosity | None = optional("Requests a shorter or longer answer by a line in the prompt.")
    response_format: dict[str, Any] | None = optional(
        "The form of the answer: `text`, `json_object` or `json_schema`."
    )
    chat_template_kwargs: TemplateOptions | None = optional("Values of the system message.")
    add_generation_prompt: Boolean | None = optional(
        "Left out or true: the model begins a message. False needs `continue_final_message`."
    )
    continue_final_message: Boolean | None = optional(
        "The model continues the last message instead of beginning one."
    )

    @property
    def template(self) -> TemplateOptions:
        return self.chat_template_kwargs or TemplateOptions()

    @property
    def effort(self) -> Effort | None:
        nested = self.reasoning.effort if self.reasoning else None
        return self.reasoning_effort or nested or self.template.reasoning_effort or self._switched_effort

    @property
    def _switched_effort(self) -> Effort | None:
        """The effort of a request that switches reasoning off instead of choosing one."""
        switches = (self.enable_thinking, self.template.enable_thinking)
        is_off = False in switches or (self.thinking is not None and self.thinking.type == "disabled")
        return "none" if is_off else None

    @property
    def reasoning_budget(self) -> int | None:
        budget = super().reasoning_budget
        if budget is None and self.thinking is not None and self.thinking.type == "enabled":
            return self.thinking.budget_tokens
        return budget

    @property
    def has_form(self) -> bool:
        """Whether the answer has a form; `content` then holds nothing else."""
        return bool(self.forms) or (self.response_format or {}).get("type", "text") != "text"

    @property
    def limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def scores(self) -> int | None:
        """The number of alternatives for each token's log-probability; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.logprobs else None


def parse_request(body: object) -> CreateChatCompletion:
    """The validated body; raises a 400 that names the fault."""
    request = read_body(
        with_generation_config(body, CreateChatCompletion, "max_completion_tokens"),
        CreateChatCompletion,
        _EXAMPLE,
    )
    shared.check_stops(request.stops)
    shared.check_metadata(request.metadata)
    check_bias(request.logit_bias)
    shared.check_stream_options(request.stream_options, streams=bool(request.stream))
    if not request.messages:
        raise InvalidRequest.at("messages", "is empty: send at least one message.")
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest.at("top_logprobs", "needs `logprobs` to be true.")
    if request.continue_final_message and request.add_generation_prompt:
        raise InvalidRequest(
            "`continue_final_message` and `add_generation_prompt` exclude each other: the first continues an "
            "answer, the second starts one.",
            param="add_generation_prompt",
        )
    if request.add_generation_prompt is False and not request.continue_final_message:
        raise InvalidRequest.at(
            "add_generation_prompt",
            "is false, so there is nothing to generate. Set continue_final_message "
            "to continue the last message, or leave it out.",
        )
    return request
