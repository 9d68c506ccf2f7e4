"""Where a generation stops: at token ids, Harmony's and the request's own, and at strings of its text.

Takes a request's values, the steps of an engine and pieces of text. Returns ids, steps without a stop token
that is text, and the text that can be shown now: it is held back only while its end can still become a stop
string. Raises a 400 that names the field.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import FIRST_SPECIAL
from inference.engine import Finish, Sampling, Step

HARMONY_STOPS = Sampling().stop_token_ids


class StopFilter:
    """`feed` every piece until `found` is set or the text ends, then `close`."""

    def __init__(self, stops: Sequence[str], *, shows_stop: bool = False) -> None:
        self.found: str | None = None
        self._stops = tuple(stops)
        self._shows_stop = shows_stop
        self._held = ""

    def feed(self, text: str) -> str:
        if self.found is not None:
            return ""
        if not self._stops:
            return text
        held = self._held + text
        places = [(place, stop) for stop in self._stops if (place := held.find(stop)) >= 0]
        if places:
            # The stop string that was complete first; if several were, the one that began first.
            place, self.found = min(places, key=lambda found: (found[0] + len(found[1]), found[0]))
            self._held = ""
            return held[: place + len(self.found)] if self._shows_stop else held[:place]
        kept = self._beginning_at_end(held)
        self._held = held[len(held) - kept :]
        return held[: len(held) - kept]

    def close(self) -> str:
        """Return the text that is still held back, as it did not become a stop string."""
        held, self._held = self._held, ""
        return held

    def _beginning_at_end(self, text: str) -> int:
        """How many characters at the end of `text` may be the beginning of a stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


def stop_ids(own: Sequence[int], vocab_size: int) -> frozenset[int]:
    for token in own:
        if token >= vocab_size:
            raise InvalidRequest.at(
                "stop_token_ids", f"must be token ids below {vocab_size}, but has {token}."
            )
    return frozenset(own)


def least_tokens(wanted: int, limit: int | None, most: int) -> int:
    """The tokens before which no stop id ends the generation; `most` bounds its output in any case."""
    if limit is not None and wanted > limit:
        raise InvalidRequest.at(
            "min_tokens", f"is {wanted}, but the request limits its output to {limit} tokens."
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
