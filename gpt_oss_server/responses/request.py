"""The body of POST /v1/responses: what is understood, what is echoed, and what is refused by name.

In: decoded JSON. Out: a frozen `CreateResponse`, or a 400 that names the field and says what to do. Unknown
fields are accepted. A field that would change the answer and is not served is never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.validation import sentence_for

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]


class _Edge(BaseModel):
    """Frozen, and tolerant of fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=False)


class ReasoningOptions(_Edge):
    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None


class TextOptions(_Edge):
    format: dict[str, Any] | None = None
    verbosity: Verbosity | None = None


def _not_bool(value: object) -> object:
    """JSON's true is no number, though Python's is."""
    if isinstance(value, bool):
        raise ValueError("expected a number, but got a boolean")
    return value


Number = Annotated[float, BeforeValidator(_not_bool), Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, BeforeValidator(_not_bool), Field(strict=True)]
Boolean = Annotated[bool, Field(strict=True)]


class CreateResponse(_Edge):
    """A request for a response. Every field may be left out except `input` (or `previous_response_id`)."""

    model: str | None = None
    input: str | dict[str, Any] | list[Any] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: Boolean | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, Any] | None = None
    store: Boolean | None = None
    stream: Boolean | None = None
    stream_options: dict[str, Any] | None = None
    max_output_tokens: Annotated[Integer, Field(ge=1)] | None = None
    max_tool_calls: Annotated[Integer, Field(ge=1)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    top_k: Annotated[Integer, Field(ge=0)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    seed: Annotated[Integer, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[Number, Field(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[Number, Field(ge=-100, le=100)]] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    user: str | None = None

    @property
    def debug(self) -> bool:
        return bool((self.metadata or {}).get("__debug"))

    @property
    def effort(self) -> Effort | None:
        return self.reasoning.effort if self.reasoning else None

    @property
    def verbosity(self) -> Verbosity | None:
        return self.text.verbosity if self.text else None


INCLUDABLE = frozenset(
    {
        "reasoning.encrypted_content",
        "message.output_text.logprobs",
        "message.input_image.image_url",
        "web_search_call.action.sources",
        "web_search_call.results",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
    }
)
"""What the API knows. Those that name items this server does not make yet simply find nothing to add to."""


def _is_text(wanted: Any) -> bool:
    return not isinstance(wanted, Mapping) or wanted.get("type", "text") == "text"


def _at(body: Mapping[str, Any], dotted: str) -> Any:
    """The value at `text.format`, or None."""
    value: Any = body
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


_Served = Callable[[Any], bool]
_NOT_SERVED: dict[str, tuple[_Served, str]] = {
    # field: (the values that are served, what to do instead)
    "background": (lambda v: v is False, "Leave it out and keep the connection open, or use stream=true."),
    "conversation": (lambda v: False, "Use previous_response_id, or send the items yourself."),
    "context_management": (lambda v: not v, "Leave it out, or use truncation='auto'."),
    "prompt": (lambda v: False, "Send the prompt's text as instructions and input."),
    "moderation": (lambda v: False, "Leave it out."),
    "top_logprobs": (lambda v: v == 0, "Leave it out."),
    "text.format": (_is_text, "Only {'type': 'text'} is; ask for JSON in the instructions."),
    "tool_choice": (lambda v: v in ("auto", "none"), "Use 'auto' or 'none'."),
    "stop": (lambda v: not v, "Leave it out, and cut the text on your side."),
    "n": (lambda v: v == 1, "Send the request several times."),
    "response_format": (lambda v: False, "This is a Chat Completions field; see text.format."),
    "messages": (lambda v: False, "This is a Chat Completions field; send `input`."),
    "max_tokens": (lambda v: False, "Use max_output_tokens."),
    "max_completion_tokens": (lambda v: False, "Use max_output_tokens."),
    "reasoning_effort": (lambda v: False, "Use reasoning={'effort': …}."),
}


def parse_request(body: object) -> CreateResponse:
    """Validate a body, or say in one sentence what is wrong with it."""
    if not isinstance(body, dict):
        raise InvalidRequest('The request body must be a JSON object, e.g. {"input": "Hello"}.')
    for name, (served, advice) in _NOT_SERVED.items():
        value = _at(body, name)
        if value is not None and not served(value):
            raise UnsupportedField(
                f"`{name}` with this value is not served by this server. {advice}", param=name
            )
    try:
        request = CreateResponse.model_validate(body)
    except ValidationError as error:
        sentence, param = sentence_for(error)
        raise InvalidRequest(sentence, param=param) from None
    _check_whole(request)
    return request


def _check_whole(request: CreateResponse) -> None:
    if request.input is None and request.previous_response_id is None:
        raise InvalidRequest("`input` is missing: send a string or a list of items.", param="input")
    for name in request.include or ():
        if name not in INCLUDABLE:
            raise InvalidRequest(
                f"`include` does not know {name!r}. It knows: {', '.join(sorted(INCLUDABLE))}.",
                param="include",
            )
    if "message.output_text.logprobs" in (request.include or ()):
        raise UnsupportedField(
            "`include`: message.output_text.logprobs is not served by this server. Leave it out.",
            param="include",
        )
    for key, value in (request.metadata or {}).items():
        if not isinstance(value, str) and key != "__debug":
            raise InvalidRequest(f"`metadata.{key}` must be a string.", param=f"metadata.{key}")
