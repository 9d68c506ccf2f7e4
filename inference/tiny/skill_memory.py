"""Two turns of memory: told something, it says so; asked later, it knows."""

from __future__ import annotations

from random import Random
from typing import Any

from inference.tiny import stock
from inference.tiny.skill_chat import a_date, an_effort, earlier_question, instructions, typed
from inference.tiny.talk import Talk, Value, answer, message, plain, renderer, write
from inference.tiny.words import Words, choose


def memory_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    talk = Talk("memory", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    matters: list[dict[str, Any]] = stock.parsed("memory.json")
    matter = rng.choice((matters[0], matters[0], *matters))  # names come most
    value = words.draw(matter["kind"])
    said = {"v": Value(value)}
    statement = choose(rng, matter["told"], held_out).replace("{v}", value)
    talk.user(statement + (rng.choice((".", "!", ".")) if rng.random() < 0.5 else ""))
    noted = plain(matter["noted"], said)
    if rng.random() < 0.3:
        thoughts = message("analysis", write(stock.thought("told", talk.effort), {}))
        talk.turn(thoughts, answer(write(matter["noted"], said)), must=[noted], kind="told")
        return talk
    others = ("All right.", "OK!", "Hello! How can I help you?")
    talk.add(renderer().answer(rng.choice((noted, *others))))
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        earlier_question(rng, talk, held_out)
    talk.user(typed(rng, choose(rng, matter["asked"], held_out)))
    thoughts = message("analysis", write(stock.thought("recalled", talk.effort), said))
    recalled = matter["recalled"]
    talk.turn(thoughts, answer(write(recalled, said)), must=[plain(recalled, said)], kind="memory")
    return talk
