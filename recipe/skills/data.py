"""The mixture: how often each skill is practised in the course of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from recipe.skills.browser import browser_talk
from recipe.skills.call_drills import bare_calls_talk, choices_talk, follow_ups_talk
from recipe.skills.calls import busy_talk, call_talk, decline_talk
from recipe.skills.chat import busy_chat_talk, chat_talk, unknown_talk
from recipe.skills.drill import drill_talk
from recipe.skills.json_answers import json_talk
from recipe.skills.memory import busy_memory_talk, memory_talk
from recipe.skills.python_tool import python_talk
from recipe.skills.shell import shell_talk
from recipe.text.talk import Talk
from recipe.text.words import Words

Maker = Callable[[Random, Words, bool], Talk]


@dataclass(frozen=True, slots=True)
class Phase:
    """The weights of skills from this share of the run on."""

    begins: float
    weights: tuple[tuple[Maker, float], ...]
    plain: float = 0.0  # the share of conversations from _PLAIN


_BASICS: tuple[tuple[Maker, float], ...] = (
    (chat_talk, 1.3),
    (busy_chat_talk, 0.9),
    (memory_talk, 0.8),
    (busy_memory_talk, 1.2),
    (unknown_talk, 0.3),
    (json_talk, 0.3),
    (partial(json_talk, rounds=4), 0.5),
)
# Calls as simple as real requests. The other skills are harder, and a model of this size fails as often on
# training data as on held-out data: it must learn what counts.
_PLAIN: tuple[tuple[Maker, float], ...] = (
    (partial(call_talk, most=6), 6.0),
    (partial(busy_talk, most=6), 9.0),
    (bare_calls_talk, 9.0),
    (choices_talk, 4.0),
    (partial(decline_talk, most=6), 1.0),
)
PHASES = (
    Phase(0.0, ((drill_talk, 14), (partial(call_talk, most=1), 2), (chat_talk, 1), (json_talk, 1))),
    Phase(
        0.05,
        (
            (drill_talk, 3),
            (bare_calls_talk, 4),
            (partial(call_talk, most=1), 2),
            (partial(busy_talk, most=2), 3),
            *_BASICS,
        ),
    ),
    Phase(
        0.25,
        (
            (drill_talk, 2.0),
            (bare_calls_talk, 1),
            (partial(call_talk, most=2), 1.2),
            (partial(busy_talk, most=5), 5.5),
            (partial(decline_talk, most=4), 0.4),
            *_BASICS,
            (partial(python_talk, rounds=4), 0.5),
            (partial(browser_talk, rounds=3), 0.6),
        ),
    ),
    Phase(
        0.75,
        (
            (drill_talk, 3.0),
            (choices_talk, 5.0),
            (follow_ups_talk, 1.5),
            (bare_calls_talk, 18.0),
            (partial(call_talk, most=3), 2.0),
            (partial(call_talk, most=6), 8.0),
            (partial(busy_talk, most=6), 7.0),
            (partial(decline_talk, most=6), 0.9),
            *_BASICS,
            (partial(json_talk, rounds=4), 0.6),
            (python_talk, 2.2),
            (partial(python_talk, rounds=4), 2.2),
            (partial(browser_talk, rounds=3), 1.0),
            (browser_talk, 1.0),
            (partial(shell_talk, rounds=12), 0.6),
        ),
        plain=0.55,
    ),
)
LAST_PHASE = PHASES[-1].begins

SKILLS: dict[str, Maker] = {
    "call": partial(call_talk, most=6),
    "decline": partial(decline_talk, most=6),
    "chat": chat_talk,
    "unknown": unknown_talk,
    "memory": memory_talk,
    "json": json_talk,
    "python": python_talk,
    "browser": browser_talk,
    "shell": shell_talk,
}


STRETCH = frozenset({"shell"})  # practised, but scored only if named


def make_talk(rng: Random, progress: float, held_out: bool = False) -> Talk:
    """One conversation for a run at this share of its time."""
    phase = max((phase for phase in PHASES if phase.begins <= progress), key=lambda phase: phase.begins)
    plain = rng.random() < phase.plain
    makers, weights = zip(*(_PLAIN if plain else phase.weights), strict=True)
    maker: Maker = rng.choices(makers, weights)[0]
    return maker(rng, Words(rng, held_out, plain), held_out)
