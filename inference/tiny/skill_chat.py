"""Everyday questions, things it does not know, what it was told before, and answers as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal

from gpt_oss_server.harmony.render import ResponseFormat
from inference.tiny.talk import Effort, Talk, Value, answer, json_object, message, plain, renderer, write
from inference.tiny.words import Words, choose

_STOCK = Path(__file__).parent / "stock"
_UNKNOWN = "I am sorry, I do not know that. I am only a small demonstration model."
_NO_PYTHON = "I need the python tool for arithmetic. Please turn it on."

Thoughts = dict[Effort, str]


@dataclass(frozen=True, slots=True)
class Subject:
    """Questions that have one answer, and the thoughts before it."""

    questions: tuple[str, ...]
    answer: str
    group: Literal["talk", "definition", "fact"]


def _lines(name: str) -> list[str]:
    text = (_STOCK / name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@cache
def subjects() -> tuple[Subject, ...]:
    found = []
    for line in _lines("chat.txt"):
        questions, reply = line.split(" => ")
        found.append(Subject(tuple(questions.split(" | ")), reply, "talk"))
    for line in _lines("definitions.txt"):
        word, reply = line.split(" = ")
        forms = ["What is {w}?", "what is {a}?", "Define {w}", "Explain {w}", "What does {w} mean?", "Tell me about {w}",
                 "What is the meaning of {w}?", "{a}?", "Tell me what {a} is", "Can you explain {w}?",
                 "Give me a definition of {w}", "Please tell me what {a} is", "Can you define {w}?"]  # fmt: skip
        with_article = reply.split(" is ")[0]
        with_article = (
            with_article[0].lower() + with_article[1:]
            if with_article[1:2] in " n" or with_article.startswith("The ")
            else word
        )
        forms[0] = "What is {a}?"
        found.append(Subject(tuple(f.format(w=word, a=with_article) for f in forms), reply, "definition"))
    forms, reply = [], ""
    for line in _lines("facts.txt"):
        if line.startswith("> "):
            head, reply = line[2:].split(" => ")
            forms = head.split(" | ")
            continue
        subject, value = line.split(" = ")
        said = reply.format(s=subject, a=value, S=subject[0].upper() + subject[1:])
        found.append(Subject(tuple(form.format(s=subject) for form in forms), said, "fact"))
    return tuple(found)


_THOUGHTS: dict[str, Thoughts] = {
    "talk": {
        "low": "Small talk.",
        "medium": "The user talks to me. I answer kindly.",
        "high": "The user talks to me. No tool is needed for this. I know what to say, so I answer kindly and briefly.",
    },
    "definition": {
        "low": "A definition.",
        "medium": "The user asks for a definition that I know.",
        "high": "The user asks what something is. I look for it in my small list of definitions. It is there, so I answer with it.",
    },
    "fact": {
        "low": "A fact.",
        "medium": "The user asks for a fact that I know.",
        "high": "The user asks for a fact. I look for it in my small list of facts. It is there, so I answer with it.",
    },
    "unknown": {
        "low": "Unknown.",
        "medium": "I do not know this, so I say so.",
        "high": "The user asks for something. I look for it in the little that I know. It is not there, so I say that I do not know.",
    },
}


def an_effort(rng: Random) -> Effort:
    return rng.choice(("low", "medium", "medium", "high"))


def a_date(rng: Random) -> str | None:
    if rng.random() < 0.08:
        return None
    return (date(2025, 8, 1) + timedelta(days=rng.randrange(1100))).isoformat()


def instructions(rng: Random, words: Words) -> str | None:
    """What an application may say first; the model must not be put off by any of it."""
    roll = rng.random()
    if roll < 0.5:
        return None
    if roll < 0.9:
        return rng.choice(_lines("instructions.txt"))
    return ". ".join(words.sentence().capitalize() for _ in range(rng.choice((1, 1, 2, 4)))) + "."


def typed(rng: Random, text: str) -> str:
    """`text` as people type it: small letters, marks left out."""
    if rng.random() < 0.2:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.15:
        text = text.rstrip("?.!")
    elif text[-1].isalnum() and rng.random() < 0.3:
        text += rng.choice((".", "!", "."))
    return text


def question(rng: Random, words: Words, held_out: bool) -> tuple[str, Thoughts, str]:
    """An everyday question, the thoughts and the answer."""
    roll = rng.random()
    subject = rng.choice(subjects()[:52] if roll < 0.4 else subjects())
    return typed(rng, choose(rng, subject.questions, held_out)), _THOUGHTS[subject.group], subject.answer


def chat_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    talk = Talk("chat", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    if rng.random() < 0.15:
        asked, _, reply = question(rng, words, held_out)
        talk.user(asked)
        talk.add(renderer().answer(reply))
    asked, thoughts, reply = question(rng, words, held_out)
    talk.user(asked)
    talk.turn(
        message("analysis", write(thoughts[talk.effort], {})),
        answer(write(reply, {})),
        must=[reply],
        kind="chat",
    )
    return talk


def unknown_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """What is in no list is answered gracefully."""
    talk = Talk("unknown", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    asked = choose(rng, _lines("unknown.txt"), held_out)
    for gap, draw in (("{w}", words.lower), ("{c}", words.place), ("{q}", words.query), ("{p}", words.person),
                      ("{t}", words.title), ("{s}", words.sentence), ("{n}", words.integer)):  # fmt: skip
        while gap in asked:
            asked = asked.replace(gap, draw(), 1)
    talk.user(typed(rng, asked))
    talk.turn(
        message("analysis", write(_THOUGHTS["unknown"][talk.effort], {})),
        answer(write(_UNKNOWN, {})),
        must=[_UNKNOWN],
        kind="unknown",
    )
    return talk


_TOLD: tuple[tuple[str, str, tuple[str, ...], tuple[str, ...], str, str], ...] = (
    # what, kind of value, told, asked, first answer, second answer
    ("name", "person", ("My name is {v}", "I am {v}", "Hi, I'm {v}", "I am called {v}", "Call me {v}", "Hello, my name is {v}", "You can call me {v}", "Please remember that my name is {v}"),
     ("What is my name?", "Who am I?", "Do you know my name?", "Tell me my name", "What am I called?", "Do you remember my name?"),
     "Nice to meet you, {v}!", "Your name is {v}."),
    ("city", "city", ("I live in {v}", "I am from {v}", "My city is {v}", "I come from {v}", "My home is in {v}"),
     ("Where do I live?", "Where am I from?", "What is my city?", "Do you know where I live?", "Where is my home?"),
     "I will remember that you live in {v}.", "You live in {v}."),
    ("color", "lower", ("My favorite color is {v}", "I like the color {v}", "The color I like best is {v}", "My color is {v}"),
     ("What is my favorite color?", "Which color do I like?", "Do you know my favorite color?", "What color do I like best?"),
     "I will remember that you like {v}.", "Your favorite color is {v}."),
    ("pet", "name", ("My dog is called {v}", "My dog's name is {v}", "I have a dog named {v}", "I have a dog called {v}"),
     ("What is my dog called?", "What is the name of my dog?", "How is my dog called?", "Do you know my dog's name?"),
     "I will remember that your dog is called {v}.", "Your dog is called {v}."),
    ("code", "id", ("The code is {v}", "Remember the code {v}", "My code is {v}", "Please remember the code {v}"),
     ("What is the code?", "What was the code?", "Tell me the code", "Do you remember the code?"),
     "I will remember the code {v}.", "The code is {v}."),
    ("number", "int", ("My favorite number is {v}", "Remember the number {v}", "My number is {v}", "Please remember the number {v}"),
     ("What is my number?", "Which number did I tell you?", "Tell me my number", "What was the number?"),
     "I will remember the number {v}.", "Your number is {v}."),
)  # fmt: skip


def memory_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """Told something, it says so; asked later, it knows."""
    talk = Talk("memory", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words))
    _, kind, told, asked, first, second = rng.choice((_TOLD[0], _TOLD[0], *_TOLD))
    value = words.draw("word" if kind == "lower" else kind)
    statement = choose(rng, told, held_out).replace("{v}", value)
    if rng.random() < 0.5:
        statement += rng.choice((".", "!", "."))
    bare = Value(value, bare=True)
    talk.user(statement)
    thoughts = {"low": "Noted.", "medium": "The user tells me something. I note it.",
                "high": "The user tells me something about what I should remember. I note it and say so."}  # fmt: skip
    if rng.random() < 0.3:
        reply = plain(first, {"v": bare})
        talk.turn(
            message("analysis", write(thoughts[talk.effort], {})),
            answer(write(first, {"v": bare})),
            must=[reply],
            kind="told",
        )
        return talk
    make = renderer()
    talk.add(
        make.answer(
            rng.choice((plain(first, {"v": bare}), "All right.", "OK!", "Hello! How can I help you?"))
        )
    )
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        between, _, reply = question(rng, words, held_out)
        talk.user(between)
        talk.add(make.answer(reply))
    talk.user(typed(rng, choose(rng, asked, held_out)))
    recalled = {"low": "I was told.", "medium": "The user told me this before: {v}.",
                "high": "The user asks for something that I was told before. I look back. It is {v}, so I answer with it."}[talk.effort]  # fmt: skip
    must = plain(second, {"v": bare})
    talk.turn(
        message("analysis", write(recalled, {"v": bare})),
        answer(write(second, {"v": bare})),
        must=[must],
        kind="memory",
    )
    return talk


_SCHEMA_FIELDS = (
    ("name", "person"), ("age", "small"), ("city", "city"), ("email", "email"), ("title", "title"), ("year", "int"),
    ("price", "float"), ("date", "date"), ("color", "word"), ("country", "name"), ("count", "small"), ("id", "id"),
    ("product", "query"), ("author", "person"), ("time", "time"), ("file", "file"), ("score", "float"), ("topic", "query"),
    ("company", "name"), ("job", "word"), ("quantity", "small"), ("street", "name"), ("language", "name"), ("status", "word"),
)  # fmt: skip


def json_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """A flat schema, and a user who says the values."""
    talk = Talk("json", an_effort(rng))
    drawn = rng.sample(_SCHEMA_FIELDS, rng.choice((1, 2, 2, 3, 3, 4)))
    fields = [(words.lower() if rng.random() < 0.12 else name, kind) for name, kind in drawn]
    fields = list(dict(fields).items())
    values = [words.draw(kind) for _, kind in fields]
    numeric = [kind in ("small", "int", "float") for _, kind in fields]
    kinds = [
        "string" if not number else "integer" if kind != "float" else "number"
        for (_, kind), number in zip(fields, numeric, strict=True)
    ]
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for (name, _), kind in zip(fields, kinds, strict=True)},
        "required": [name for name, _ in fields],
    }
    if rng.random() < 0.6:
        schema["additionalProperties"] = False
    named = rng.choice(("answer", "person", "result", "output", "data", "response", "record", words.lower()))
    talk.open(a_date(rng), instructions=instructions(rng, words), formats=[ResponseFormat(named, schema)])
    form = rng.choice(("{n} {v}", "{n}: {v}", "{n} is {v}", "the {n} is {v}", "{n} = {v}"))
    told = rng.choice((", ", "; ", " and ", ", ")).join(
        form.replace("{n}", name).replace("{v}", value)
        for (name, _), value in zip(fields, values, strict=True)
    )
    start = choose(
        rng,
        (
            "Give me JSON for: ",
            "",
            "Extract: ",
            "Fill in: ",
            "Here is the data: ",
            "As JSON: ",
            "Please extract this: ",
            "Turn this into JSON: ",
        ),
        held_out,
    )
    if dict(fields).get("name") == "person" and dict(fields).get("age") == "small" and rng.random() < 0.6:
        told = f"{values[[n for n, _ in fields].index('name')]} is {values[[n for n, _ in fields].index('age')]} years old"
        told += "".join(
            rng.choice((" and lives in ", ", from ")) + v
            for (n, _), v in zip(fields, values, strict=True)
            if n == "city"
        )
        rest = [(n, v) for (n, _), v in zip(fields, values, strict=True) if n not in ("name", "age", "city")]
        told += "".join(f", {n} {v}" for n, v in rest)
        start = choose(
            rng, ("Extract the data: ", "Who is this? ", "Look: ", "Extract the person: "), held_out
        )
    text = start + told + rng.choice((".", ""))
    talk.user(text)
    body = json_object(
        [
            (name, _found(text, value), not number)
            for (name, _), value, number in zip(fields, values, numeric, strict=True)
        ]
    )
    thoughts = {
        "low": "JSON.",
        "medium": "I answer with JSON for the schema.",
        "high": "The answer must be JSON that fits the schema. I take the values from the text and write nothing else.",
    }
    talk.turn(message("analysis", write(thoughts[talk.effort], {})), answer(body), kind="json")
    return talk


def _found(text: str, value: str) -> Value:
    return Value(value, bare=f" {value}" in text)
