"""Fields that more than one API takes, under the same names and with the same bounds.

Takes decoded JSON. Returns validated fields. All APIs take `GenerationFields` and
`FormFields`; plain completions also `ChoiceFields`, Responses `TurnFields`, and Chat Completions both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, Effort, Integer, Number
from gpt_oss_server.http.unserved import NotServed

MAX_CHOICES = 128  # OpenAI's limit
MAX_STOPS = 64  # OpenAI's limit is four
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512  # keys, and characters of each
_DEBUG = "__debug"  # this server's own key of `metadata`

Temperature = Annotated[Number, Field(ge=0, le=2)]
Share = Annotated[Number, Field(ge=0, le=1)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
Seed = Annotated[Integer, Field(ge=-(2**63), lt=2**63)]
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
    repetition_penalty: Annotated[Number, Field(gt=0, le=10)] | None = None
    logit_bias: dict[str, Any] | list[Any] | None = None  # turns/biases.py reads it
    bad_words: list[str] | None = None
    banned_strings: str | list[str] | None = None
    min_tokens: Annotated[Integer, Field(ge=0)] | None = None
    ignore_eos: Boolean | None = None
    stop_token_ids: Annotated[list[Annotated[Integer, Field(ge=0)]], Field(max_length=MAX_STOPS)] | None = (
        None
    )
    generation_config: str | dict[str, Any] | None = None  # serving/generation_config.py reads it
    cache_salt: Salt | None = None
    priority: Priority | None = None
    stream: Boolean | None = None
    user: str | None = None


FormKind = Literal["json", "json_object", "regex", "choice", "grammar"]
_FORMS: dict[str, FormKind] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "json_schema": "json",
    "regex": "regex",
    "regex_pattern": "regex",
    "grammar": "grammar",
    "grammar_string": "grammar",
    "ebnf": "grammar",
}
_NESTED_FORMS: dict[str, FormKind] = {
    "json_": "json",
    "json_object": "json_object",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
}


class StructuredOutputs(Body):
    """The forms of an answer, as vLLM has them. One of them."""

    not_served: ClassVar[NotServed] = {
        "structural_tag": (lambda v: False, "Use strict tools, or a grammar."),
        "whitespace_pattern": (lambda v: False, "Leave it out."),
    }

    json_: dict[str, Any] | str | None = Field(None, alias="json")
    json_object: Boolean | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None


class FormFields(Body):
    """The form of the answer, under the names that other servers have for it."""

    described: ClassVar[Mapping[str, type[Body]]] = {"structured_outputs": StructuredOutputs}

    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    json_schema: dict[str, Any] | str | None = None
    regex: str | None = None
    regex_pattern: str | None = None
    grammar: str | None = None
    grammar_string: str | None = None
    ebnf: str | None = None

    @property
    def forms(self) -> dict[str, tuple[FormKind, Any]]:
        """The forms that the request sets: by the field that holds it, the kind and the value."""
        given = [(name, kind, getattr(self, name)) for name, kind in _FORMS.items()]
        # Clients of llama.cpp send an empty `grammar` for none.
        given = [row for row in given if row[2] != ""]
        if self.structured_outputs is not None:
            given += [
                (f"structured_outputs.{kind}", kind, getattr(self.structured_outputs, name))
                for name, kind in _NESTED_FORMS.items()
            ]
        return {name: (kind, value) for name, kind, value in given if value not in (None, False)}


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
        return bool((self.metadata or {}).get(_DEBUG))


def check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"`stop` may have {MAX_STOPS} strings at most.", param="stop")
    if "" in stops:
        raise InvalidRequest("`stop` contains an empty string, which would stop immediately.", param="stop")


def check_stream_options(options: object, *, streams: bool) -> None:
    if options is not None and not streams:
        raise InvalidRequest(
            "`stream_options` needs `stream` to be true. Leave it out, or stream the answer.",
            param="stream_options",
        )


def shown_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """The metadata without this server's own key."""
    return {key: value for key, value in (metadata or {}).items() if key != _DEBUG}


def check_metadata(metadata: dict[str, Any] | None) -> None:
    """OpenAI's limits. This server's own key does not count."""
    pairs = shown_metadata(metadata)
    if len(pairs) > MAX_METADATA:
        raise InvalidRequest(
            f"`metadata` may have {MAX_METADATA} keys at most, not {len(pairs)}.", param="metadata"
        )
    for key, value in pairs.items():
        where = f"metadata.{key:.{MAX_METADATA_KEY}}"
        if not isinstance(value, str):
            raise InvalidRequest(f"`{where}` must be a string.", param=where)
        for text, what, most in ((key, "key", MAX_METADATA_KEY), (value, "value", MAX_METADATA_VALUE)):
            if len(text) > most:
                raise InvalidRequest(
                    f"`{where}`: a {what} may have {most} characters at most, not {len(text)}.", param=where
                )
