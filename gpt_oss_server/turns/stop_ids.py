"""The ids at which a generation stops: Harmony's, and the request's own.

Takes a request's values and the steps of an engine. Returns ids, and steps without a stop token that is text.
Raises a 400 that names the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import FIRST_SPECIAL
from inference.engine import Finish, Sampling, Step

HARMONY_STOPS = Sampling().stop_token_ids


def stop_ids(own: Sequence[int], vocab_size: int) -> frozenset[int]:
    for token in own:
        if token >= vocab_size:
            raise InvalidRequest(
                f"`stop_token_ids` must be token ids below {vocab_size}, but has {token}.",
                param="stop_token_ids",
            )
    return HARMONY_STOPS | frozenset(own)


def least_tokens(wanted: int, limit: int | None, most: int) -> int:
    """The tokens before which no stop id ends the generation; `most` bounds its output in any case."""
    if limit is not None and wanted > limit:
        raise InvalidRequest(
            f"`min_tokens` is {wanted}, but the request limits its output to {limit} tokens.",
            param="min_tokens",
        )
    return min(wanted, most)


def own_stops(sampling: Sampling, *, shown: bool = False) -> frozenset[int]:
    """The request's own stop ids that are text: the answer leaves them out, unless they are `shown`."""
    if shown:
        return frozenset()
    return frozenset(token for token in sampling.stop_token_ids if token < FIRST_SPECIAL)


def without_own_stop(step: Step, hidden: frozenset[int]) -> tuple[Step, int | None]:
    """The step without the stop token that ends it, and this token, if it is one of `hidden`."""
    if step.finish is not Finish.STOP or not step.tokens or step.tokens[-1] not in hidden:
        return step, None
    scores = None if step.logprobs is None else step.logprobs[:-1]
    return replace(step, tokens=step.tokens[:-1], logprobs=scores), step.tokens[-1]
