"""The mixture: which skills are practised how often, as the run goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from inference.tiny.skill_browser import browser_talk
from inference.tiny.skill_chat import chat_talk, unknown_talk
from inference.tiny.skill_drill import drill_talk
from inference.tiny.skill_json import json_talk
from inference.tiny.skill_memory import memory_talk
from inference.tiny.skill_python import python_talk
from inference.tiny.skill_tools import bare_calls_talk, call_talk, decline_talk
from inference.tiny.talk import Talk
from inference.tiny.words import Words

Maker = Callable[[Random, Words, bool], Talk]


def _calls(most: int) -> Maker:
    return lambda rng, words, held_out: call_talk(rng, words, held_out, most)


def _declines(most: int) -> Maker:
    return lambda rng, words, held_out: decline_talk(rng, words, held_out, most)


@dataclass(frozen=True, slots=True)
class Phase:
    """From this share of the run on, skills are drawn with these weights."""

    begins: float
    weights: tuple[tuple[Maker, float], ...]


_BASICS: tuple[tuple[Maker, float], ...] = (
    (chat_talk, 3.0),
    (memory_talk, 1.0),
    (unknown_talk, 0.8),
    (json_talk, 1.0),
)
PHASES = (
    Phase(0.0, ((drill_talk, 14), (_calls(1), 2), (chat_talk, 1), (json_talk, 1))),
    Phase(0.07, ((drill_talk, 4), (bare_calls_talk, 4), (_calls(1), 4), (_calls(2), 3), *_BASICS)),
    Phase(
        0.35,
        (
            (drill_talk, 1),
            (bare_calls_talk, 7),
            (_calls(2), 4),
            (_calls(5), 1.5),
            (_declines(4), 0.7),
            *_BASICS,
            (python_talk, 1.2),
            (browser_talk, 0.2),
        ),
    ),
    Phase(
        0.65,
        (
            (drill_talk, 0.3),
            (bare_calls_talk, 3),
            (_calls(3), 5),
            (_calls(6), 2.0),
            (_declines(5), 1.3),
            *_BASICS,
            (python_talk, 1.2),
            (browser_talk, 0.6),
        ),
    ),
)

SKILLS: dict[str, Maker] = {
    "call": _calls(6),
    "decline": _declines(6),
    "chat": chat_talk,
    "unknown": unknown_talk,
    "memory": memory_talk,
    "json": json_talk,
    "python": python_talk,
    "browser": browser_talk,
}


def make_talk(rng: Random, progress: float, held_out: bool = False) -> Talk:
    """One conversation for a run that is so far along."""
    phase = max((phase for phase in PHASES if phase.begins <= progress), key=lambda phase: phase.begins)
    makers, weights = zip(*phase.weights, strict=True)
    maker: Maker = rng.choices(makers, weights)[0]
    return maker(rng, Words(rng, held_out), held_out)
