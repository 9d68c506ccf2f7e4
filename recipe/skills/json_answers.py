"""Answers as JSON: a flat schema, and a user message with the values."""

from __future__ import annotations

from random import Random

from gpt_oss_server.harmony.render import ResponseFormat
from recipe.skills.chat import a_date, an_effort, instructions
from recipe.text import stock
from recipe.text.talk import Talk, Value, answer, json_object, message, write
from recipe.text.words import Words, choose

_NUMBERS = {"small": "integer", "int": "integer", "float": "number"}
_NAMES = ("answer", "person", "result", "output", "data", "response", "record")
_FORMS = ("{n} {v}", "{n}: {v}", "{n} is {v}", "the {n} is {v}", "{n} = {v}")
_STARTS = (
    "Give me JSON for: ",
    "",
    "Extract: ",
    "Fill in: ",
    "Here is the data: ",
    "As JSON: ",
    "Please extract this: ",
    "JSON: ",
    "Return JSON: ",
    "I need this as JSON: ",
    "Put this into JSON: ",
    "Convert to JSON: ",
    "Write it down as JSON: ",
    "Answer in JSON. ",
    "Make JSON of the following: ",
    "This should be JSON: ",
    "Please give me an object for: ",
    "These are the fields: ",
    "Take this: ",
    "Turn this into JSON: ",
)
_STARTS_OF_PEOPLE = (
    "Extract the data: ",
    "Who is this? ",
    "Look: ",
    "",
    "Extract: ",
    "Here is a person: ",
    "Extract the person: ",
)


def json_talk(rng: Random, words: Words, held_out: bool, rounds: int = 1) -> Talk:
    talk = Talk("json", an_effort(rng))
    kinds = _fields(rng, words)
    named = rng.choice((*_NAMES, words.lower()))
    wanted = ResponseFormat(named, _schema(rng, kinds))
    talk.open(a_date(rng), instructions=instructions(rng, words), formats=[wanted])
    for _ in range(rng.randrange(rounds) + 1):
        _fill_in(rng, words, talk, kinds, held_out)
    return talk


def _fill_in(rng: Random, words: Words, talk: Talk, kinds: dict[str, str], held_out: bool) -> None:
    values = {name: words.draw(kind) for name, kind in kinds.items()}
    if kinds.get("name") == "person" and kinds.get("age") == "small" and rng.random() < 0.6:
        text = choose(rng, _STARTS_OF_PEOPLE, held_out) + _about_a_person(rng, values)
    else:
        form = rng.choice(_FORMS)
        pairs = [form.replace("{n}", name).replace("{v}", value) for name, value in values.items()]
        start = choose(rng, _STARTS, held_out, kept_back=1)
        text = start + rng.choice((", ", "; ", " and ", ", ")).join(pairs)
    text += rng.choice((".", ""))
    talk.user(text)
    fields = [
        (name, Value(value, bare=f" {value}" in text), kinds[name] not in _NUMBERS)
        for name, value in values.items()
    ]
    thoughts = message("analysis", write(stock.thought("json", talk.effort), {}))
    talk.turn(thoughts, answer(json_object(fields)), kind="json")


def _fields(rng: Random, words: Words) -> dict[str, str]:
    """Names and kinds of values; sometimes an unseen name."""
    lines = [line.split(" = ") for line in stock.lines("fields.txt")]
    drawn = rng.sample(lines, rng.choice((1, 2, 2, 3, 3, 4)))
    return {(words.lower() if rng.random() < 0.12 else name): kind for name, kind in drawn}


def _schema(rng: Random, kinds: dict[str, str]) -> dict[str, object]:
    properties = {name: {"type": _NUMBERS.get(kind, "string")} for name, kind in kinds.items()}
    schema: dict[str, object] = {"type": "object", "properties": properties, "required": list(kinds)}
    if rng.random() < 0.6:
        schema["additionalProperties"] = False
    return schema


def _about_a_person(rng: Random, values: dict[str, str]) -> str:
    text = f"{values['name']} is {values['age']} years old"
    if "city" in values:
        text += rng.choice((" and lives in ", ", from ")) + values["city"]
    rest = (f", {name} {value}" for name, value in values.items() if name not in ("name", "age", "city"))
    return text + "".join(rest)
