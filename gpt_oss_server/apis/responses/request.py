"""The body of POST /v1/responses: the fields that this server supports, and those that it refuses by name.

Takes decoded JSON. Returns a frozen `CreateResponse`, or raises a 400 that names the field and the remedy.
Unknown fields are accepted. A known field that would change the answer is never ignored.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.content.biases import check_bias
from gpt_oss_server.content.prompts import with_template
from gpt_oss_server.errors import InvalidRequest
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
from gpt_oss_server.http.shared_fields import (
    FormFields,
    GenerationFields,
    Reasoning,
    StreamOptions,
    TurnFields,
    check_metadata,
    check_stream_options,
)
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
from gpt_oss_server.items.reasoning import SummaryKind
from gpt_oss_server.items.table import Kinds


class ReasoningOptions(Reasoning):
    summary: Literal["auto", "concise", "detailed", "none"] | None = optional(
        "A summary taken from the reasoning: a part for each paragraph."
    )
    generate_summary: Literal["auto", "concise", "detailed", "none"] | None = optional(
        "The old name of `summary`."
    )
    context: Literal["auto", "current_turn", "all_turns"] | None = optional(
        "Whose reasoning the prompt shows: that of this turn (`current_turn`, `auto`) or of all turns."
    )


class TextOptions(Body):
    format: dict[str, Any] | None = optional(
        "The form of the answer: `text`, `json_object` or `json_schema`."
    )
    verbosity: Verbosity | None = optional("Requests a shorter or longer answer by a line in the prompt.")


class PromptReference(Body):
    id: str = required("The name of the template.")
    version: str | None = optional("Which version of it. Left out: the one without a version in its name.")
    variables: dict[str, str | dict[str, Any]] | None = optional(
        "Texts, or parts of messages, for the template's variables."
    )


class ContextManagement(Body):
    type: Literal["compaction"] = required("Always `compaction`.")
    compact_threshold: Annotated[Integer, Field(ge=1000)] | None = optional(
        "The length of a prompt, in tokens, from which the conversation is compacted first."
    )


_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    **TEMPLATES_NOT_SERVED,
    "stop": (EMPTY, "Leave it out, and cut the text on your side."),
    "n": (only(1), "Send the request several times."),
    "response_format": (NEVER, "This is a Chat Completions field; see text.format."),
    "messages": (NEVER, "This is a Chat Completions field; send `input`."),
    "max_tokens": (NEVER, "Use max_output_tokens."),
    "max_completion_tokens": (NEVER, "Use max_output_tokens."),
    "reasoning_effort": (NEVER, "Use reasoning={'effort': …}."),
    "functions": (EMPTY, "This is a Chat Completions field; use tools."),
    "logprobs": (FALSE, "Leave it out."),
    "prompt_logprobs": (NEVER, "Use /v1/completions."),
    "return_token_ids": (FALSE, "Leave it out, or use Chat Completions."),
    "chat_template_kwargs": (EMPTY, "Use reasoning, instructions and tools."),
    "truncate_prompt_tokens": (only(-1), "Use truncation 'auto'."),
    "enable_response_messages": (FALSE, 'Send metadata {"__debug": true}, or read the trace.'),
    "previous_input_messages": (EMPTY, "Use previous_response_id, or send all items as `input`."),
    "multi_agent": (FALSE, "Leave it out."),
    "background_options": (EMPTY, "Use background."),
    "access_programs": (EMPTY, "Leave it out."),
    "image": (EMPTY, "This model writes text only."),
    "system": (NEVER, "Use instructions."),
    "conversation_id": (NEVER, "Use conversation."),
    "thinking": (NEVER, "Use reasoning={'effort': …} or reasoning={'max_tokens': …}."),
    "enable_thinking": (TRUE, "Use reasoning={'effort': 'none'}."),
}


class CreateResponse(TurnFields, FormFields, GenerationFields):
    """A request for a response. Every field is optional except `input` (or `previous_response_id`)."""

    not_served: ClassVar[NotServed] = _NOT_SERVED
    example: ClassVar[str] = '{"input": "Hello"}'

    input: str | dict[str, Any] | list[Any] | None = optional("A text, or a list of items.")
    instructions: str | None = optional(
        "Instructions to the model, for this response alone. Those of system messages in the input follow."
    )
    previous_response_id: str | None = optional("The stored response that this one continues.")
    conversation: str | dict[str, Any] | None = optional(
        "The stored conversation that this response continues and joins: an id, or an object with `id`."
    )
    reasoning: ReasoningOptions | None = optional("How the model reasons, and what of it the response shows.")
    text: TextOptions | None = optional("The form and the length of the answer.")
    prompt: PromptReference | None = optional(
        "A template that the server's operator keeps (`--prompts`): fields of this request, of which those "
        "that the request has win."
    )
    include: list[str] | None = optional("Parts of items that are left out otherwise.")
    truncation: Literal["auto", "disabled"] | None = optional(
        "With `auto`, the oldest turns are dropped from a prompt that is too long; else it is a 400."
    )
    context_management: list[ContextManagement] | None = optional(
        "With an entry, a long conversation is compacted before the answer."
    )
    background: Boolean | None = optional(
        "Runs the response without a connection: it is returned immediately, and fetched later."
    )
    on_disconnect: Literal["cancel", "continue"] | None = optional(
        "Whether a stored, streamed response ends or continues when its client leaves."
    )
    stream_options: StreamOptions | None = optional("Accepted with `stream`; changes nothing.")
    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = optional(
        "The most tokens of output, reasoning included."
    )
    safety_identifier: str | None = optional("Shown in the response; changes nothing.")
    prompt_cache_key: str | None = optional(
        "Shown in the response. An engine of several replicas sends requests with the same key to "
        "the same one."
    )
    prompt_cache_retention: str | None = optional("Shown in the response; changes nothing.")

    @property
    def conversation_id(self) -> str | None:
        conversation = self.conversation
        return conversation["id"] if isinstance(conversation, dict) else conversation

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
    "reasoning": "reasoning.reasoning_text.logprobs",  # this server's own
}
_INCLUDABLE = frozenset(
    {
        *_SCORED.values(),
        "reasoning.encrypted_content",
        "message.input_image.image_url",
        "computer_call_output.output.image_url",
        "file_search_call.results",
    }
)


class CompactResponse(CreateResponse):
    """A request for a compaction. `model` is required, as in OpenAI's API; it may be null."""

    example: ClassVar[str] = '{"model": "gpt-oss-20b", "input": "Hello"}'

    model: str | None = required("The model to use; null: the one that this server serves.")


def without_compaction(request: CreateResponse) -> CreateResponse:
    """The same request, which then never compacts the conversation."""
    return request.model_copy(update={"context_management": None})


def parse_request(
    body: object, kind: type[CreateResponse] = CreateResponse, prompts: Path | None = None
) -> CreateResponse:
    """The validated body, with its template of `prompts`; raises an `ApiError` that names the fault."""
    body = with_generation_config(with_template(body, prompts), kind, "max_output_tokens")
    request = read_body(body, kind, kind.example)
    if isinstance(request.conversation, dict) and not isinstance(request.conversation.get("id"), str):
        raise InvalidRequest.at("conversation.id", "must be a string.")
    if request.conversation is not None and request.previous_response_id is not None:
        raise InvalidRequest(
            "`previous_response_id` and `conversation` exclude each other: a conversation knows its past.",
            param="conversation",
        )
    if request.input is None and request.previous_response_id is None and request.conversation is None:
        raise InvalidRequest.at("input", "is missing: send a string or a list of items.")
    if request.background and request.store is False:
        raise InvalidRequest.at(
            "background", "needs a stored response, to be fetched later: leave `store` out, or send true."
        )
    check_metadata(request.metadata)
    check_bias(request.logit_bias)
    check_stream_options(request.stream_options, streams=bool(request.stream))
    return request


def includable(kinds: Kinds) -> frozenset[str]:
    """The names that the API knows. Those of items that this server never produces have no effect."""
    return _INCLUDABLE | kinds.includable


def check_included(names: Iterable[str], kinds: Kinds) -> None:
    known = includable(kinds)
    for name in names:
        if name not in known:
            raise InvalidRequest.at(
                "include", f"does not know {name!r:.80}. It knows: {', '.join(sorted(known))}."
            )
