"""Fields that more than one API takes, under the same names and with the same bounds.

Each takes `GenerationFields` and `FormFields`, completions `ChoiceFields`, Responses `TurnFields`, Chat both.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean, Effort, Integer, Number, optional, required
from gpt_oss_server.http.unserved import NEVER, NotServed
from gpt_oss_server.ids import CHOSEN

MAX_CHOICES = 128  # OpenAI's limit
MAX_STOPS = 64  # OpenAI's limit is four
_LONGEST_STOP = 1_000  # characters: each token is compared with all beginnings of a stop string
MAX_METADATA, MAX_METADATA_KEY, MAX_METADATA_VALUE = 16, 64, 512  # keys, and characters of each
_DEBUG = "__debug"  # this server's own key of `metadata`

Temperature = Annotated[Number, Field(ge=0, le=2)]
Share = Annotated[Number, Field(ge=0, le=1)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
Seed = Annotated[Integer, Field(ge=-(2**63), lt=2**63)]
Salt = Annotated[str, Field(min_length=1, max_length=1_024)]
Priority = Annotated[Integer, Field(ge=-(2**31), lt=2**31)]
Budget = Annotated[Integer, Field(ge=0)]  # reasoning tokens
StopIds = Annotated[list[Annotated[Integer, Field(ge=0)]], Field(max_length=MAX_STOPS)]
RequestId = Annotated[str, Field(pattern=f"^{CHOSEN}$")]
Alternatives = Annotated[Integer, Field(ge=0, le=20)]  # per log-probability


class GenerationFields(Body):
    """How to sample, how the engine schedules and caches the request, and how to send the answer."""

    model: str | None = optional("The model to use. Left out: the one that this server serves.")
    temperature: Temperature | None = optional(
        "How freely tokens are sampled; 0 takes the likeliest one. Left out: the model's own default."
    )
    top_p: Share | None = optional(
        "Samples from the likeliest tokens that have this share of the probability. Left out: the "
        "model's own default."
    )
    top_k: Annotated[Integer, Field(ge=-1)] | None = optional(
        "Samples from this many of the likeliest tokens; 0 and -1 mean all."
    )
    min_p: Share | None = optional(
        "Leaves out tokens that are less likely than this share of the likeliest one's probability."
    )
    seed: Seed | None = optional("Makes sampling repeatable on the same server and model.")
    presence_penalty: Penalty | None = optional(
        "Lowers the score of every token that the output has already."
    )
    frequency_penalty: Penalty | None = optional(
        "Lowers a token's score for each time that the output has it already."
    )
    repetition_penalty: Annotated[Number, Field(gt=0, le=10)] | None = optional(
        "Divides the scores of tokens that the prompt or the output has; 1 changes nothing."
    )
    logit_bias: dict[str, Any] | None = optional("Adds to the scores of tokens, by their ids.")
    min_tokens: Annotated[Integer, Field(ge=0)] | None = optional(
        "The output does not end before it has this many tokens."
    )
    ignore_eos: Boolean | None = optional(
        "The model does not end its output: it ends at the limit of tokens."
    )
    stop_token_ids: StopIds | None = optional("Further token ids at which the output ends.")
    generation_config: str | dict[str, Any] | None = optional(
        "The generation settings of transformers, as an object or a JSON text. Fields of the request win."
    )
    cache_salt: Salt | None = optional("Only requests with the same salt share the prefix cache.")
    priority: Priority | None = optional(
        "Requests with a lower number start first, if the server has `--allow-priority`."
    )
    request_id: RequestId | None = optional(
        "The answer's id is this after its prefix, if the answer is not stored; else more follows. It wins "
        "over the header `x-request-id`, which does the same. 64 letters, digits, `_`, `.` or `-`."
    )
    stream: Boolean | None = optional("Sends the answer as server-sent events while it is generated.")
    user: str | None = optional("Kept and shown where the API's answer has it; changes nothing.")


FormKind = Literal["json", "json_object", "regex", "choice", "grammar"]
_FORMS: dict[str, FormKind] = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "json_schema": "json",
    "regex": "regex",
    "grammar": "grammar",
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
        "structural_tag": (NEVER, "Use strict tools, or a grammar."),
        "whitespace_pattern": (NEVER, "Leave it out."),
    }

    json_: dict[str, Any] | str | None = Field(
        None, alias="json", description="The answer is JSON of this schema."
    )
    json_object: Boolean | None = optional("With true, the answer is a JSON object.")
    regex: str | None = optional("The answer matches this regular expression.")
    choice: list[str] | None = optional("The answer is one of these texts.")
    grammar: str | None = optional(
        "The answer follows this grammar, in Lark's notation or llama.cpp's (GBNF)."
    )


class FormFields(Body):
    """The form of the answer, under the names that other servers have for it."""

    structured_outputs: StructuredOutputs | None = optional(
        "The form of the answer, as vLLM has it: one of its fields."
    )
    guided_json: dict[str, Any] | str | None = optional("The answer is JSON of this schema.")
    guided_regex: str | None = optional("The answer matches this regular expression.")
    guided_choice: list[str] | None = optional("The answer is one of these texts.")
    guided_grammar: str | None = optional("The answer follows this grammar.")
    json_schema: dict[str, Any] | str | None = optional("The answer is JSON of this schema.")
    regex: str | None = optional("The answer matches this regular expression.")
    grammar: str | None = optional("The answer follows this grammar.")
    ebnf: str | None = optional("The answer follows this grammar.")

    @property
    def forms(self) -> dict[str, tuple[FormKind, Any]]:
        """The forms that the request sets: by the field that holds it, the kind and the value."""
        forms = [(name, kind, getattr(self, name)) for name, kind in _FORMS.items()]
        # Clients of llama.cpp send an empty `grammar` for none.
        forms = [row for row in forms if row[2] != ""]
        if self.structured_outputs is not None:
            forms += [
                (f"structured_outputs.{kind}", kind, getattr(self.structured_outputs, name))
                for name, kind in _NESTED_FORMS.items()
            ]
        return {name: (kind, value) for name, kind, value in forms if value not in (None, False)}


class StreamOptions(Body):
    include_usage: Boolean | None = optional("The last chunk has the usage and no choices.")
    include_obfuscation: Boolean | None = optional("Changes nothing: a stream has no padding.")


class ChoiceFields(Body):
    """Several choices for one prompt, each of which ends at a stop string."""

    n: Annotated[Integer, Field(ge=1, le=MAX_CHOICES)] | None = optional(
        "The number of choices. Their seeds are `seed`, `seed + 1`, and so on."
    )
    stop: str | list[str] | None = optional("Texts at which the answer ends. The answer leaves them out.")
    include_stop_str_in_output: Boolean | None = optional(
        "The answer keeps the text, or the token, that ended it."
    )
    return_token_ids: Boolean | None = optional(
        "The answer has the ids of the prompt's and of its own tokens."
    )
    stream_options: StreamOptions | None = optional("What a stream has in addition. It needs `stream`.")

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class Reasoning(Body):
    effort: Effort | None = optional("How much the model reasons. Left out: `--default-reasoning-effort`.")
    max_tokens: Budget | None = optional(
        "The most tokens of reasoning; then the server ends it and the model answers."
    )


class PredictedText(Body):
    type: Literal["text"] = required("The only type.")
    text: str = required("A part of the text.")


class Prediction(Body):
    """What the answer will mostly be, such as a file before an edit."""

    type: Literal["content"] = required("The only type.")
    content: str | list[PredictedText] = required("The text, or its parts.")

    @property
    def text(self) -> str:
        parts = self.content
        return parts if isinstance(parts, str) else "".join(part.text for part in parts)


class ModerationMode(Body):
    mode: Literal["score", "block"] = required("With `block`, what is flagged is withheld.")


class ModerationPolicy(Body):
    input: ModerationMode | None = optional("What happens to input that is flagged. Left out: nothing.")
    output: ModerationMode | None = optional("What happens to an answer that is flagged. Left out: nothing.")


class Moderation(Body):
    """The judgement of input and output by another model of the server."""

    model: str = required("One of OpenAI's names, or the model that `--moderation` names.")
    policy: ModerationPolicy | None = optional("Whether what is flagged is blocked.")

    @property
    def blocks(self) -> frozenset[str]:
        modes = {} if self.policy is None else {"input": self.policy.input, "output": self.policy.output}
        return frozenset(what for what, mode in modes.items() if mode is not None and mode.mode == "block")


class TurnFields(Body):
    """A turn of the model: its tools, its reasoning, and the fields that the response keeps."""

    tools: list[dict[str, Any]] | None = optional("The tools that the model may call.")
    tool_choice: str | dict[str, Any] | None = optional(
        "Whether the model must, may or must not call tools, and which. Left out: it may."
    )
    parallel_tool_calls: Boolean | None = optional(
        "With true, an answer may have several calls. Left out: the first call ends it."
    )
    max_tool_calls: Annotated[Integer, Field(ge=1)] | None = optional(
        "The most calls of tools that this server runs."
    )
    reasoning: Reasoning | None = optional("How the model reasons.")
    prediction: Prediction | None = optional(
        "What the answer will mostly be, such as a file before an edit. The tokens are the same without it, "
        "and arrive sooner where it is right, if the engine can use it."
    )
    thinking_token_budget: Budget | None = optional(
        "The same as `reasoning.max_tokens`. It wins if a request has both."
    )
    top_logprobs: Alternatives | None = optional(
        "The number of likeliest alternatives for each log-probability."
    )
    metadata: dict[str, Any] | None = optional(
        'Up to 16 texts that are kept with the answer. `{"__debug": true}` adds prompt and output as tokens.'
    )
    moderation: Moderation | None = optional(
        "Judges the newest input and the answer, and adds the results. An answer that may be blocked is sent "
        "once it is judged."
    )
    store: Boolean | None = optional("Whether the answer is kept.")
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] | None = optional(
        "Shown in the answer; changes nothing."
    )

    @property
    def reasoning_budget(self) -> int | None:
        budget = self.reasoning.max_tokens if self.reasoning else None
        return budget if self.thinking_token_budget is None else self.thinking_token_budget

    @property
    def debug(self) -> bool:
        return bool((self.metadata or {}).get(_DEBUG))


def check_stops(stops: tuple[str, ...], where: str = "stop") -> None:
    if len(stops) > MAX_STOPS:
        raise InvalidRequest.at(where, f"may have {MAX_STOPS} strings at most.")
    if any(len(stop) > _LONGEST_STOP for stop in stops):
        raise InvalidRequest(
            f"The strings of `{where}` may have {_LONGEST_STOP:,} characters at most.", param=where
        )
    if "" in stops:
        raise InvalidRequest.at(where, "contains an empty string, which would stop immediately.")


def check_stream_options(options: object, *, streams: bool) -> None:
    if options is not None and not streams:
        raise InvalidRequest.at(
            "stream_options", "needs `stream` to be true. Leave it out, or stream the answer."
        )


def shown_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """The metadata without this server's own key."""
    return {key: value for key, value in (metadata or {}).items() if key != _DEBUG}


def check_metadata(metadata: dict[str, Any] | None) -> None:
    """OpenAI's limits. This server's own key does not count."""
    pairs = shown_metadata(metadata)
    if len(pairs) > MAX_METADATA:
        raise InvalidRequest.at("metadata", f"may have {MAX_METADATA} keys at most, not {len(pairs)}.")
    for key, value in pairs.items():
        where = f"metadata.{key:.{MAX_METADATA_KEY}}"
        if not isinstance(value, str):
            raise InvalidRequest.at(where, "must be a string.")
        for text, what, most in ((key, "key", MAX_METADATA_KEY), (value, "value", MAX_METADATA_VALUE)):
            if len(text) > most:
                raise InvalidRequest.at(
                    where, f": a {what} may have {most} characters at most, not {len(text)}."
                )
