"""Two turns of memory: the model acknowledges a statement, and recalls it later."""

from __future__ import annotations

from random import Random
from typing import Any

from recipe.skills.chat import (
    a_date,
    an_effort,
    answer_everyday,
    earlier_question,
    instructions,
    typed,
)
from recipe.text import stock
from recipe.text.talk import Talk, Value, answer, message, plain, renderer, write
from recipe.text.words import Words, choose


def memory_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    talk = Talk("memory", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    matters: list[dict[str, Any]] = stock.parsed("memory.json")
    matter = rng.choice((matters[0], matters[0], *matters))  # names are most frequent
    value = words.draw(matter["kind"])
    if rng.random() < 0.3:
        _tell(rng, talk, matter, value, held_out)
        _note(talk, matter, value)
        return talk
    _tell(rng, talk, matter, value, held_out)
    others = ("All right.", "OK!", "Hello! How can I help you?")
    noted = plain(matter["noted"], {"v": Value(value)})
    talk.add(renderer().answer(rng.choice((noted, *others))))
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        earlier_question(rng, talk, held_out)
    _recall(rng, talk, matter, value, held_out)
    return talk


def busy_memory_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """Several statements and questions about them, all of them practised."""
    talk = Talk("memory", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    matters: list[dict[str, Any]] = stock.parsed("memory.json")
    known: list[tuple[dict[str, Any], str]] = []
    fresh = rng.sample(matters, min(len(matters), rng.randrange(2, 5)))
    while fresh or (known and rng.random() < 0.7):
        roll = rng.random()
        if roll < 0.15:
            answer_everyday(rng, talk, held_out)
        elif fresh and (roll < 0.55 or not known):
            matter = fresh.pop()
            value = words.draw(matter["kind"])
            _tell(rng, talk, matter, value, held_out)
            _note(talk, matter, value)
            known.append((matter, value))
        else:
            _recall(rng, talk, *rng.choice(known), held_out)
    return talk


def _tell(rng: Random, talk: Talk, matter: dict[str, Any], value: str, held_out: bool) -> None:
    statement = choose(rng, matter["told"], held_out).replace("{v}", value)
    talk.user(statement + (rng.choice((".", "!", ".")) if rng.random() < 0.5 else ""))


def _note(talk: Talk, matter: dict[str, Any], value: str) -> None:
    values = {"v": Value(value)}
    thoughts = message("analysis", write(stock.thought("told", talk.effort), {}))
    body = answer(write(matter["noted"], values))
    talk.turn(thoughts, body, must=[plain(matter["noted"], values)], kind="told")


def _recall(rng: Random, talk: Talk, matter: dict[str, Any], value: str, held_out: bool) -> None:
    values = {"v": Value(value)}
    talk.user(typed(rng, choose(rng, matter["asked"], held_out)))
    thoughts = message("analysis", write(stock.thought("recalled", talk.effort), values))
    recalled = matter["recalled"]
    talk.turn(thoughts, answer(write(recalled, values)), must=[plain(recalled, values)], kind="memory")
