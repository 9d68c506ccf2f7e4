"""The body of POST /v1/responses: the fields that this server supports, and those that it refuses by name.

Takes decoded JSON. Returns a frozen `CreateResponse`, or raises a 400 that names the field and the remedy.
Unknown fields are accepted. A known field that would change the answer is never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.hosted.table import HOSTED_TOOLS
from gpt_oss_server.http.fields import (
    Body,
    Boolean,
    Effort,
    Integer,
    Verbosity,
    read_body,
)
from gpt_oss_server.http.shared_fields import (
    FormFields,
    GenerationFields,
    Reasoning,
    TurnFields,
    check_metadata,
    check_stream_options,
)
from gpt_oss_server.http.unserved import SAMPLERS_NOT_SERVED, TEMPLATES_NOT_SERVED, NotServed
from gpt_oss_server.responses.items.summary import SummaryKind
from gpt_oss_server.serving.generation_config import with_generation_config
from gpt_oss_server.turns.biases import check_bias


class ReasoningOptions(Reasoning):
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: Literal["auto", "concise", "detailed", "none"] | None = None  # the old name
    context: Literal["auto", "current_turn", "all_turns"] | None = None


class TextOptions(Body):
    format: dict[str, Any] | None = None
    verbosity: Verbosity | None = None


class ContextManagement(Body):
    type: Literal["compaction"]
    compact_threshold: Annotated[Integer, Field(ge=1000)] | None = None


_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    **TEMPLATES_NOT_SERVED,
    "prompt": (lambda v: False, "Send the prompt's text as instructions and input."),
    "moderation": (lambda v: False, "Leave it out."),
    "stop": (lambda v: not v, "Leave it out, and cut the text on your side."),
    "n": (lambda v: v == 1, "Send the request several times."),
    "response_format": (lambda v: False, "This is a Chat Completions field; see text.format."),
    "messages": (lambda v: False, "This is a Chat Completions field; send `input`."),
    "max_tokens": (lambda v: False, "Use max_output_tokens."),
    "max_completion_tokens": (lambda v: False, "Use max_output_tokens."),
    "reasoning_effort": (lambda v: False, "Use reasoning={'effort': …}."),
    "functions": (lambda v: not v, "This is a Chat Completions field; use tools."),
    "logprobs": (lambda v: v is False, "Leave it out."),
    "best_of": (lambda v: v == 1, "Leave it out."),
    "use_beam_search": (lambda v: v is False, "Leave it out, or use Chat Completions."),
    "prompt_logprobs": (lambda v: False, "Leave it out, or use Chat Completions."),
    "return_token_ids": (lambda v: v is False, "Leave it out, or use Chat Completions."),
    "chat_template_kwargs": (lambda v: not v, "Use reasoning, instructions and tools."),
    "truncate_prompt_tokens": (lambda v: v == -1, "Use truncation 'auto'."),
    "previous_input_messages": (lambda v: not v, "Use previous_response_id, or send all items as `input`."),
    "multi_agent": (lambda v: v is False, "Leave it out."),
    "system": (lambda v: False, "Use instructions."),
    "conversation_id": (lambda v: False, "Use conversation."),
    "thinking": (lambda v: False, "Use reasoning={'effort': …} or reasoning={'max_tokens': …}."),
    "enable_thinking": (lambda v: v is True, "Use reasoning={'effort': 'none'}."),
}


class CreateResponse(TurnFields, FormFields, GenerationFields):
    """A request for a response. Every field is optional except `input` (or `previous_response_id`)."""

    not_served: ClassVar[NotServed] = _NOT_SERVED

    input: str | dict[str, Any] | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: list[ContextManagement] | None = None
    background: Boolean | None = None
    on_disconnect: Literal["cancel", "continue"] | None = None
    stream_options: dict[str, Any] | None = None
    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = None
    enable_response_messages: Boolean | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None

    @property
    def conversation_id(self) -> str | None:
        given = self.conversation
        return given["id"] if isinstance(given, dict) else given

    @property
    def allows_parallel_calls(self) -> bool:
        """Only if the request explicitly allows them: see docs/architecture.md."""
        return self.parallel_tool_calls is True

    @property
    def effort(self) -> Effort | None:
        return self.reasoning.effort if self.reasoning else None

    @property
    def summary(self) -> SummaryKind | None:
        options = self.reasoning or ReasoningOptions()
        wanted = options.summary or options.generate_summary
        return None if wanted == "none" else wanted

    @property
    def reasoning_context(self) -> Literal["current_turn", "all_turns"]:
        """The turns whose reasoning the prompt shows: by default the current one only, as in Harmony."""
        wanted = self.reasoning.context if self.reasoning else None
        return "all_turns" if wanted == "all_turns" else "current_turn"

    @property
    def scores(self) -> int | None:
        """The number of alternatives listed per log-probability; None: no log-probabilities."""
        return (self.top_logprobs or 0) if self.scored else None

    @property
    def scored(self) -> frozenset[str]:
        """The types of items that show log-probabilities."""
        named = {kind for kind, name in _SCORED.items() if name in (self.include or ())}
        return frozenset(named | {"message"} if self.top_logprobs else named)

    @property
    def verbosity(self) -> Verbosity | None:
        return self.text.verbosity if self.text else None


_SCORED = {
    "message": "message.output_text.logprobs",
    # These two are this server's own.
    "reasoning": "reasoning.reasoning_text.logprobs",
    "function_call": "function_call.arguments.logprobs",  # of custom tools too
}
INCLUDABLE = frozenset(
    {
        *_SCORED.values(),
        "reasoning.encrypted_content",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        *(each for tool in HOSTED_TOOLS for each in tool.includable),
    }
)
"""The names that the API knows. Those that concern items which this server never produces have no effect."""


class CompactResponse(CreateResponse):
    """A request for a compaction. `model` is required, as in OpenAI's API; it may be null."""

    model: str | None


def parse_request(body: object) -> CreateResponse:
    """The validated body; raises a 400 whose message names the fault."""
    return _parsed(body, CreateResponse, '{"input": "Hello"}')


def parse_compaction(body: object) -> CreateResponse:
    return _parsed(body, CompactResponse, '{"model": "gpt-oss-20b", "input": "Hello"}')


def _parsed(body: object, kind: type[CreateResponse], example: str) -> CreateResponse:
    request = read_body(with_generation_config(body, kind, "max_output_tokens"), kind, example)
    _check_whole(request)
    return request


def without_compaction(request: CreateResponse) -> CreateResponse:
    """The same request, which then never compacts the conversation."""
    return request.model_copy(update={"context_management": None})


def _check_whole(request: CreateResponse) -> None:
    if isinstance(request.conversation, dict) and not isinstance(request.conversation.get("id"), str):
        raise InvalidRequest("`conversation.id` must be a string.", param="conversation.id")
    if request.conversation is not None and request.previous_response_id is not None:
        raise InvalidRequest(
            "`previous_response_id` and `conversation` exclude each other: a conversation knows its past.",
            param="conversation",
        )
    if request.input is None and request.previous_response_id is None and request.conversation is None:
        raise InvalidRequest("`input` is missing: send a string or a list of items.", param="input")
    check_included(request.include or ())
    if request.background and request.store is False:
        raise InvalidRequest(
            "`background` needs a stored response, to be fetched later: leave `store` out, or send true.",
            param="background",
        )
    check_metadata(request.metadata)
    check_bias(request.logit_bias)
    check_stream_options(request.stream_options, streams=bool(request.stream))


def check_included(names: Iterable[str]) -> None:
    for name in names:
        if name not in INCLUDABLE:
            raise InvalidRequest(
                f"`include` does not know {name!r:.80}. It knows: {', '.join(sorted(INCLUDABLE))}.",
                param="include",
            )
