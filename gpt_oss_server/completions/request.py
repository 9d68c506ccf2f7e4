"""The body of POST /v1/completions: a prompt as text or ids, which the model continues without Harmony.

Takes decoded JSON. Returns a frozen `CreateCompletion`, or raises a 400 that names the field and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding, without_long_runs
from gpt_oss_server.http.fields import SAMPLERS_NOT_SERVED, Boolean, Integer, NotServed, read_body
from gpt_oss_server.http.shared_fields import Alternatives, ChoiceFields, GenerationFields, check_stops
from gpt_oss_server.http.validation import json_type
from gpt_oss_server.turns.beams import check_best_of

_EXAMPLE = '{"prompt": "Once upon a time"}'
DEFAULT_MAX_TOKENS = 16  # OpenAI's default for this API


class CreateCompletion(ChoiceFields, GenerationFields):
    prompt: str | list[Any]
    max_tokens: Annotated[Integer, Field(ge=0)] | None = None
    skip_special_tokens: Boolean | None = None
    logprobs: Alternatives | None = None


_NOT_SERVED: NotServed = {
    **SAMPLERS_NOT_SERVED,
    "suffix": (lambda v: v == "", "This model only continues a prompt; leave it out."),
    "messages": (lambda v: False, "Send `prompt`, or use /v1/chat/completions."),
    "prompt_embeds": (lambda v: not v, "Send the prompt as text or token ids."),
    "response_format": (lambda v: v == {"type": "text"}, "Describe the format in the prompt instead."),
}


def parse_request(body: object) -> CreateCompletion:
    request = read_body(body, CreateCompletion, _NOT_SERVED, _EXAMPLE)
    check_stops(request.stops)
    check_best_of(request)
    if request.max_tokens == 0 and not request.echo:
        raise InvalidRequest(
            "`max_tokens` is 0, so there is nothing to return without `echo`.", param="max_tokens"
        )
    return request


def prompts_of(given: str | list[Any], encoding: Encoding, vocabulary: int, most: int) -> list[list[int]]:
    """The ids of each prompt; there may be `most`. `given` is a text, its ids, or a list of either."""
    if isinstance(given, str) or (given and all(_is_id(token) for token in given)):
        given = [given]
    if not given:
        raise InvalidRequest("`prompt` is empty: send a text or token ids.", param="prompt")
    if len(given) > most:
        raise InvalidRequest(
            f"`prompt` has {len(given):,} prompts, but with this `n` (or `best_of`) a request may have "
            f"{most:,} at most. Send them in several requests.",
            param="prompt",
        )
    return [_ids(one, f"prompt[{index}]", encoding, vocabulary) for index, one in enumerate(given)]


def encode_prompt(text: str, encoding: Encoding) -> list[int]:
    """Encodes a whole prompt. The client writes all of it, so a special token's spelling is that token."""
    return [token for piece in without_long_runs(text) for token in encoding.encode_special(piece)]


def check_ids(ids: Iterable[Any], where: str, vocabulary: int) -> None:
    for token in ids:
        if not _is_id(token) or not 0 <= token < vocabulary:
            raise InvalidRequest(
                f"`{where}` must be token ids below {vocabulary}, but has {token!r:.60}.", param=where
            )


def _ids(one: Any, where: str, encoding: Encoding, vocabulary: int) -> list[int]:
    if isinstance(one, str):
        ids = encode_prompt(one, encoding)
    elif isinstance(one, list):
        check_ids(one, where, vocabulary)
        ids = one
    else:
        raise InvalidRequest(
            f"`{where}` must be a text or an array of token ids, but is {json_type(one)}.", param=where
        )
    if not ids:
        raise InvalidRequest(f"`{where}` is empty: there is nothing to continue.", param=where)
    return ids


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
