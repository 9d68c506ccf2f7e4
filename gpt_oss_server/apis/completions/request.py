"""The body of POST /v1/completions: a prompt as text or ids, which the model continues without Harmony.

Takes decoded JSON. Returns a frozen `CreateCompletion`, or raises a 400 that names the field and the remedy.
"""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.content.biases import check_bias
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http import shared_fields as shared
from gpt_oss_server.http import unserved
from gpt_oss_server.http.fields import Boolean, Integer, optional, read_body, required
from gpt_oss_server.http.generation_config import with_generation_config
from gpt_oss_server.http.validation import json_type

_EXAMPLE = '{"prompt": "Once upon a time"}'
DEFAULT_MAX_TOKENS = 16  # OpenAI's default for this API


_NOT_SERVED: unserved.NotServed = {
    **unserved.SAMPLERS_NOT_SERVED,
    **unserved.TEMPLATES_NOT_SERVED,
    "suffix": (unserved.only(""), "This model only continues a prompt; leave it out."),
    "messages": (unserved.NEVER, "Send `prompt`, or use /v1/chat/completions."),
    "prompt_embeds": (unserved.EMPTY, "Send the prompt as text or token ids."),
    "chat_template_kwargs": (unserved.EMPTY, "A plain prompt has no template."),
    "tools": (unserved.EMPTY, "Use /v1/chat/completions."),
    "max_completion_tokens": (unserved.NEVER, "Use max_tokens."),
    "max_output_tokens": (unserved.NEVER, "Use max_tokens."),
}


class CreateCompletion(shared.ChoiceFields, shared.FormFields, shared.GenerationFields):
    not_served: ClassVar[unserved.NotServed] = _NOT_SERVED

    prompt: str | list[Any] = required("A text, its token ids, or a list of either.")
    max_tokens: Annotated[Integer, Field(ge=0)] | None = optional(
        "The most tokens of output; 0 with `echo` returns the prompt's scores alone. Left out: 16."
    )
    skip_special_tokens: Boolean | None = optional(
        "With false, the text spells special tokens out. Left out: it leaves them out."
    )
    logprobs: shared.Alternatives | None = optional(
        "The log-probability of each token, and of this many of the likeliest alternatives."
    )
    prompt_logprobs: shared.Alternatives | None = optional(
        "The log-probability of each prompt token, and of this many of the likeliest in its place."
    )
    echo: Boolean | None = optional("The text repeats the prompt.")
    truncate_prompt_tokens: Annotated[Integer, Field(ge=-1)] | None = optional(
        "Keeps this many tokens of the prompt; -1: as many as leave room for the answer."
    )
    truncation_side: Literal["left", "right"] | None = optional(
        "The end of the prompt that is cut. Left out: the beginning."
    )
    response_format: dict[str, Any] | None = optional(
        "The form of the text: `text`, `json_object` or `json_schema`."
    )

    @property
    def scores(self) -> int | None:
        return self.logprobs

    @property
    def limit(self) -> int:
        """The most tokens to sample. Without any, a single one still reads the prompt."""
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else max(self.max_tokens, 1)


def parse_request(body: object) -> CreateCompletion:
    request = read_body(
        with_generation_config(body, CreateCompletion, "max_tokens"), CreateCompletion, _EXAMPLE
    )
    shared.check_stops(request.stops)
    shared.check_stream_options(request.stream_options, streams=bool(request.stream))
    check_bias(request.logit_bias)
    if request.max_tokens == 0 and not request.echo:
        raise InvalidRequest.at("max_tokens", "is 0, so there is nothing to return without `echo`.")
    return request


def prompts_of(prompt: str | list[Any], encoding: Encoding, vocabulary: int, most: int) -> list[list[int]]:
    """The ids of each prompt; there may be `most`. `prompt` is a text, its ids, or a list of either."""
    if isinstance(prompt, str) or (prompt and all(_is_id(token) for token in prompt)):
        prompt = [prompt]
    if not prompt:
        raise InvalidRequest.at("prompt", "is empty: send a text or token ids.")
    if len(prompt) > most:
        raise InvalidRequest.at(
            "prompt",
            f"has {len(prompt):,} prompts, but with this `n` a request may have "
            f"{most:,} at most. Send them in several requests.",
        )
    return [_ids(one, f"prompt[{index}]", encoding, vocabulary) for index, one in enumerate(prompt)]


def truncated(prompt: list[int], request: CreateCompletion, context: int) -> list[int]:
    """The part of a prompt that `truncate_prompt_tokens` keeps: the end, or the start on request."""
    most = request.truncate_prompt_tokens
    if most is None:
        return prompt
    if most == 0:
        raise InvalidRequest.at("truncate_prompt_tokens", "is 0, so there is nothing to continue.")
    # As many as leave room for the answer; at least one token.
    kept = max(context - request.limit, 1) if most == -1 else most
    return prompt[:kept] if request.truncation_side == "right" else prompt[-kept:]


def encode_prompt(text: str, encoding: Encoding) -> list[int]:
    """Encodes a whole prompt. The client writes all of it, so a special token's spelling is that token."""
    return encoding.encode_special(text)


def check_ids(ids: Iterable[Any], where: str, vocabulary: int) -> None:
    for token in ids:
        if not _is_id(token) or not 0 <= token < vocabulary:
            raise InvalidRequest.at(where, f"must be token ids below {vocabulary}, but has {token!r:.60}.")


def _ids(one: Any, where: str, encoding: Encoding, vocabulary: int) -> list[int]:
    if isinstance(one, str):
        ids = encode_prompt(one, encoding)
    elif isinstance(one, list):
        check_ids(one, where, vocabulary)
        ids = one
    else:
        raise InvalidRequest.at(where, f"must be a text or an array of token ids, but is {json_type(one)}.")
    if not ids:
        raise InvalidRequest.at(where, "is empty: there is nothing to continue.")
    return ids


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
