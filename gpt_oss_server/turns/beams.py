"""Beam search: what it needs from the engine, and which request fields exclude it.

Takes a request of any API that has the field. Returns a `BeamSearch`, or None if the request does not enable
it. Raises a 400 that names the field.
"""

from __future__ import annotations

from typing import Any, Protocol

from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from inference.beams import MOST_BEAMS, MOST_POSITIONS, BeamSearch
from inference.engine import Engine

_DEFAULT_LENGTH_PENALTY = 1.0
# Fields that a search cannot obey, each with its neutral values.
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "logit_bias": ({}, []),
    "bad_words": ([],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
}


class BeamFields(Protocol):
    @property
    def use_beam_search(self) -> bool | None: ...
    @property
    def length_penalty(self) -> float | None: ...
    @property
    def n(self) -> int | None: ...
    @property
    def best_of(self) -> int | None: ...


def check_best_of(request: BeamFields) -> None:
    if request.best_of not in (None, request.n or 1) and not request.use_beam_search:
        raise UnsupportedField(
            "`best_of` must equal `n`, or be the number of beams with use_beam_search.",
            param="best_of",
        )


def check_beams_fit(search: BeamSearch | None, prompt: int, limit: int | None) -> None:
    """`prompt` and `limit` count tokens. Without a limit, the search ends where its room does."""
    if search is None or 1 <= (most := search.most_tokens(prompt)) >= (limit or 1):
        return
    room = f"at most {most:,} for an answer" if most >= 1 else "no room for an answer"
    raise InvalidRequest(
        f"`use_beam_search` takes {MOST_POSITIONS:,} tokens in all beams together, the prompt counted for "
        f"each. After this prompt of {prompt:,} tokens there is {room}. Use fewer beams, or fewer tokens.",
        param="use_beam_search",
    )


def beam_search(request: BeamFields, engine: Engine) -> BeamSearch | None:
    if not request.use_beam_search:
        return None
    if not engine.info.scores_prompts:
        raise UnsupportedField(
            f"`use_beam_search` is not served by the model {engine.info.name!r}, which has no scores to "
            "search by. Leave it out, or use n to sample several answers.",
            param="use_beam_search",
        )
    for name, neutral in _WITHOUT_EFFECT.items():
        if getattr(request, name, None) not in (None, *neutral):
            raise UnsupportedField(
                f"`{name}` has no effect in a beam search, which uses the model's own scores. Leave one out.",
                param=name,
            )
    least = request.n or 1
    width = request.best_of or least
    if not least <= width <= MOST_BEAMS:
        raise InvalidRequest(
            f"`use_beam_search` takes {least} to {MOST_BEAMS} beams (`best_of`, else `n`), not {width}.",
            param="best_of" if request.best_of else "n",
        )
    penalty = request.length_penalty
    return BeamSearch(
        engine, width=width, length_penalty=_DEFAULT_LENGTH_PENALTY if penalty is None else penalty
    )
