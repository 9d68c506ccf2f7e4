"""Everyday questions with an answer from the stock, and graceful answers to unknown ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from random import Random
from typing import Literal

from recipe.functions.tool_stock import KEPT_BACK
from recipe.text import stock
from recipe.text.talk import Effort, Talk, answer, message, write
from recipe.text.words import Words, choose

UNKNOWN = "I am sorry, I do not know that. I am only a small demonstration model."
_GROUPS = Literal["talk", "definition", "fact"]
_DEFINITION_ASKS = (
    "What's {a}?",
    "define {w} for me",
    "How do you define {w}?",
    "How would you define {w}?",
    "Can you tell me what {a} is?",
    "I would like to know what {a} is",
    "Could you explain {w} to me?",
    "{w}, what is that?",
    "What do people mean by {w}?",
    "the definition of {w}",
    "Do you know what {a} is?",
    "What is {a}?",
    "what is {a}?",
    "Define {w}",
    "Explain {w}",
    "What does {w} mean?",
    "Tell me about {w}",
    "What is the meaning of {w}?",
    "{a}?",
    "Tell me what {a} is",
    "Can you explain {w}?",
    "Give me a definition of {w}",
    "Please tell me what {a} is",
    "Can you define {w}?",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """Questions with one answer, and the group that selects the thoughts before it."""

    questions: tuple[str, ...]
    answer: str
    group: _GROUPS


@cache
def subjects(group: _GROUPS) -> tuple[Subject, ...]:
    return {"talk": _talk, "definition": _definitions, "fact": _facts}[group]()


def _talk() -> tuple[Subject, ...]:
    parts = (line.split(" => ") for line in stock.lines("chat.txt"))
    return tuple(Subject(tuple(asks.split(" | ")), reply, "talk") for asks, reply in parts)


def _definitions() -> tuple[Subject, ...]:
    found = []
    for line in stock.lines("definitions.txt"):
        word, reply = line.split(" = ")
        named = reply.split(" is ")[0]
        with_article = named[0].lower() + named[1:] if named.startswith(("A ", "An ", "The ")) else word
        asks = tuple(ask.format(w=word, a=with_article) for ask in _DEFINITION_ASKS)
        found.append(Subject(asks, reply, "definition"))
    return tuple(found)


def _facts() -> tuple[Subject, ...]:
    found: list[Subject] = []
    asks: list[str] = []
    form = ""
    for line in stock.lines("facts.txt"):
        if line.startswith("> "):
            head, form = line[2:].split(" => ")
            asks = head.split(" | ")
            continue
        subject, value = line.split(" = ")
        reply = form.format(s=subject, a=value, S=subject[0].upper() + subject[1:])
        found.append(Subject(tuple(ask.format(s=subject) for ask in asks), reply, "fact"))
    return tuple(found)


def an_effort(rng: Random) -> Effort:
    return rng.choice(("low", "medium", "medium", "high"))


def a_date(rng: Random) -> str | None:
    if rng.random() < 0.08:
        return None
    return (date(2025, 8, 1) + timedelta(days=rng.randrange(1100))).isoformat()


def instructions(rng: Random, words: Words) -> str | None:
    """An application's instructions, none of which may confuse the model."""
    roll = rng.random()
    if roll < 0.5:
        return None
    if roll < 0.9:
        return rng.choice(stock.lines("instructions.txt"))
    return ". ".join(words.sentence().capitalize() for _ in range(rng.choice((1, 1, 2, 4)))) + "."


def typed(rng: Random, text: str) -> str:
    """`text` as people type it: with lower case and missing punctuation."""
    if rng.random() < 0.2:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15:
        text = text.rstrip("?.!")
    elif text[-1].isalnum() and rng.random() < 0.3:
        text += rng.choice((".", "!", "."))
    return text


def question(rng: Random, held_out: bool) -> tuple[str, Subject]:
    """The text of an everyday question, and its subject."""
    groups: tuple[_GROUPS, ...] = ("talk", "talk", "talk", "definition", "definition", "fact", "fact")
    subject = rng.choice(subjects(rng.choice(groups)))
    text = typed(rng, choose(rng, subject.questions, held_out, KEPT_BACK))
    if rng.random() < 0.08 and subject.answer[:5] not in ("Hello", "Good "):
        text = rng.choice(("Hello! ", "Hi, ", "Hi! ", "Hello, ", "Hey, ")) + text
    return text, subject


def answer_everyday(rng: Random, talk: Talk, held_out: bool) -> None:
    """The user asks an everyday question; the model thinks and answers."""
    text, subject = question(rng, held_out)
    talk.user(text)
    thoughts = message("analysis", write(stock.thought(subject.group, talk.effort), {}))
    talk.turn(thoughts, answer(write(subject.answer, {})), must=[subject.answer], kind="chat")


def earlier_question(rng: Random, talk: Talk, held_out: bool) -> None:
    """A question and its answer, in the form of history."""
    text, subject = question(rng, held_out)
    talk.user(text)
    talk.past(answer(write(subject.answer, {})))


def chat_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    talk = Talk("chat", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    for _ in range(rng.choice((0, 0, 1, 2, 3, 4))):
        earlier_question(rng, talk, held_out)
    answer_everyday(rng, talk, held_out)
    return talk


def busy_chat_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """Many questions in a row, all of them practised, some of them unknown."""
    talk = Talk("chat", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    for _ in range(rng.randrange(3, 7)):
        if rng.random() < 0.2:
            _unknown(rng, words, talk, held_out)
        else:
            answer_everyday(rng, talk, held_out)
    return talk


def unknown_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """A question that is in no list, with a graceful answer."""
    talk = Talk("unknown", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    _unknown(rng, words, talk, held_out)
    return talk


def _unknown(rng: Random, words: Words, talk: Talk, held_out: bool) -> None:
    text = choose(rng, stock.lines("unknown.txt"), held_out)
    drawn = {"w": "word", "c": "city", "q": "query", "p": "person", "t": "title", "s": "sentence", "n": "int"}
    for gap, kind in drawn.items():
        while f"{{{gap}}}" in text:
            text = text.replace(f"{{{gap}}}", words.draw(kind), 1)
    talk.user(typed(rng, text))
    thoughts = message("analysis", write(stock.thought("unknown", talk.effort), {}))
    talk.turn(thoughts, answer(write(UNKNOWN, {})), must=[UNKNOWN], kind="unknown")
