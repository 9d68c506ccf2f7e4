"""The request bodies of the Messages API: a field is served, has no effect here, or is refused by name."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, Integer, optional, read_body, required
from gpt_oss_server.http.shared_fields import Budget, Share, Temperature, check_stops
from gpt_oss_server.http.unserved import EMPTY, NEVER, NotServed

_NOT_SERVED: NotServed = {
    "thread": (EMPTY, "Send all messages."),
    "compaction": (EMPTY, "Use context_management with an edit of type 'compact_20260112'."),
    "fallbacks": (EMPTY, "The answer comes from the model that the request names."),
    "fallback_credit_token": (EMPTY, "The answer comes from the model that the request names."),
    "input": (NEVER, "This is a field of the Responses API; send `messages`."),
    "prompt": (NEVER, "Send `messages`, or use /v1/completions."),
    "stop": (NEVER, "Use stop_sequences."),
    "max_output_tokens": (NEVER, "Use max_tokens."),
    "max_completion_tokens": (NEVER, "Use max_tokens."),
    "reasoning_effort": (NEVER, "Use output_config={'effort': …}."),
    "response_format": (NEVER, "Use output_config={'format': …}."),
}
Thoughts = Literal["shown", "omitted", "hidden"]
"""Whether a message has the model's thinking: with its text, only sealed, or only sealed before a call."""

_EXAMPLE = '{"max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]}'


class Thinking(Body):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"] = required(
        "`disabled`: the model does not reason. All others leave it to the effort."
    )
    budget_tokens: Budget | None = optional("The most tokens of reasoning, with `enabled`.")
    display: Literal["summarized", "omitted", "updates"] | None = optional(
        "With `omitted`, thinking has a signature and no text. Text is the model's own, never a summary."
    )


class OutputConfig(Body):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = optional(
        "How much the model reasons. Left out: `--default-reasoning-effort`."
    )
    format: dict[str, Any] | None = optional("`json_schema`: the answer is JSON of this schema.")


class Metadata(Body):
    user_id: str | None = optional("Changes nothing.")


class ContextManagement(Body):
    edits: list[dict[str, Any]] | None = optional(
        "`clear_thinking_20251015`, `clear_tool_uses_20250919` and `compact_20260112`."
    )


class CountTokens(Body):
    """The fields that decide the prompt."""

    not_served: ClassVar[NotServed] = _NOT_SERVED

    model: str | None = optional("The model to use. Left out: the one that this server serves.")
    messages: list[Any] = required(
        "The conversation so far. One that ends with the assistant's text is continued from there."
    )
    system: str | list[Any] | None = optional("The instructions: a text or text blocks.")
    tools: list[dict[str, Any]] | None = optional(
        "Client tools, and web search, web fetch, code execution and `file_search`."
    )
    tool_choice: dict[str, Any] | None = optional("`auto`, `any`, `tool` with a name, or `none`.")
    thinking: Thinking | None = optional("Whether the model reasons, and whether the message shows it.")
    output_config: OutputConfig | None = optional("The effort, and the form of the answer.")
    output_format: dict[str, Any] | None = optional("The old place of `output_config.format`.")
    mcp_servers: list[dict[str, Any]] | None = optional("MCP servers whose tools run here.")
    context_management: ContextManagement | None = optional("What earlier parts of a conversation leave out.")
    container: str | dict[str, Any] | None = optional("The container in which code runs, by its id.")
    cache_control: dict[str, Any] | None = optional("Changes nothing: every prompt is cached.")
    betas: list[str] | None = optional("Changes nothing: what is served needs no header.")


class CreateMessage(CountTokens):
    """A request for a message."""

    max_tokens: Annotated[Integer, Field(ge=1)] = required("The most tokens of output, thinking included.")
    stream: Boolean | None = optional("Sends the message as server-sent events while it is generated.")
    stop_sequences: list[str] | None = optional("Texts at which the answer ends.")
    temperature: Temperature | None = optional("How freely tokens are sampled.")
    top_k: Annotated[Integer, Field(ge=0)] | None = optional(
        "Samples from this many of the likeliest tokens."
    )
    top_p: Share | None = optional("Samples from the likeliest tokens with this share of the probability.")
    metadata: Metadata | None = optional("About the request.")
    service_tier: Literal["auto", "standard_only"] | None = optional("Changes nothing.")
    speed: Literal["standard", "fast"] | None = optional("Changes nothing.")
    inference_geo: str | None = optional("Changes nothing.")
    diagnostics: dict[str, Any] | None = optional("Changes nothing.")
    billing_policy: dict[str, Any] | None = optional("Changes nothing.")
    user_profile_id: str | None = optional("Changes nothing.")
    workspace_id: str | None = optional("Changes nothing.")

    @property
    def stops(self) -> tuple[str, ...]:
        return tuple(self.stop_sequences or ())


def parse_message(body: object) -> CreateMessage:
    """The validated body; raises a 400 that names the fault."""
    request = read_body(body, CreateMessage, _EXAMPLE)
    check_stops(request.stops, "stop_sequences")
    if any(not stop.strip() for stop in request.stops):
        raise InvalidRequest.at("stop_sequences", "must not have an empty text.")
    return request


def parse_count(body: object) -> CountTokens:
    return read_body(body, CountTokens, _EXAMPLE)
