"""Tools and requests for them: those of the stock, and made-up ones that match by words alone."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from gpt_oss_server.harmony.render import FunctionTool
from inference.tiny import stock
from inference.tiny.talk import Value
from inference.tiny.words import Words, choose


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter as declared: its type, the values it may have, whether it has to be given."""

    name: str
    kind: str
    about: str = ""
    required: bool = True

    @property
    def options(self) -> list[str]:
        return self.kind.removeprefix("enum:").split("|") if self.kind.startswith("enum:") else []

    @property
    def json_type(self) -> str:
        if self.kind in ("small", "int"):
            return "integer"
        if self.kind == "float":
            return "number"
        return "boolean" if self.kind.startswith("bool:") or self.kind == "switch" else "string"


@dataclass(frozen=True, slots=True)
class Request:
    """A tool, what the user says to have it called, and the arguments that follow from it."""

    tool: FunctionTool
    text: str
    arguments: tuple[tuple[Field, Value], ...]
    answer: tuple[tuple[str, ...], str] | None = None  # keys of a usual result, and the sentence made of them


def tools_of_the_stock() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stock.parsed("tools.json")
    return found


def declare(rng: Random, name: str, about: str, fields: list[Field]) -> FunctionTool:
    """The declaration, with and without descriptions, in the variants that clients write."""
    described = rng.random() < 0.6
    properties: dict[str, Any] = {}
    for field in fields:
        kind = field.json_type
        schema: dict[str, Any] = {"type": "number" if kind == "integer" and rng.random() < 0.4 else kind}
        if field.options:
            schema["enum"] = field.options
        if described and field.about and rng.random() < 0.8:
            schema["description"] = field.about
        properties[field.name] = schema
    parameters: dict[str, Any] | None = {"type": "object", "properties": properties}
    assert parameters is not None
    parameters["required"] = [field.name for field in fields if field.required]
    if not fields and rng.random() < 0.5:
        parameters = None
    return FunctionTool(name, about if rng.random() < 0.75 else None, parameters)


def quoted(rng: Random, kind: str, value: str) -> str:
    if (
        kind in ("small", "int", "float", "time", "date")
        or kind.startswith(("enum:", "bool:"))
        or kind == "switch"
    ):
        return value
    roll = rng.random()
    if roll < 0.28:
        return f'"{value}"'
    return f"'{value}'" if roll < 0.36 else value


def found(text: str, value: str) -> Value:
    """`value` as a copy from `text`: with its space where it stands after one."""
    return Value(value, bare=f" {value}" in text)


def _spoken(rng: Random, words: Words, field: Field) -> tuple[str, str | None]:
    """What the user says for a parameter, and the argument's text where it is not what was said."""
    if field.options:
        value = rng.choice(field.options)
        shown = value.capitalize() if value.islower() and rng.random() < 0.15 else value
        return shown, value
    if field.kind.startswith("bool:"):
        return rng.choice(field.kind.removeprefix("bool:").split("|")), "true"
    if field.kind == "switch":
        on = rng.random() < 0.5
        return ("on" if on else "off"), ("true" if on else "false")
    value = words.draw("word" if field.kind == "lower" else field.kind)
    return quoted(rng, field.kind, value), None


def end_of(rng: Random, text: str) -> str:
    """`text` as people type it."""
    if text.endswith(("?", ".")):
        return text if rng.random() < 0.8 else text[:-1]
    roll = rng.random()
    text += "." if roll < 0.35 else "!" if roll < 0.38 else " please" if roll < 0.43 else ""
    return text if rng.random() < 0.75 or not text[0].isupper() else text[0].lower() + text[1:]


def _fill(
    rng: Random, words: Words, fields: list[Field], ask: str, used: dict[int, str], held_out: bool
) -> tuple[str, list[tuple[Field, Value]]]:
    ending = "?" if ask.endswith("?") else ""
    template = ask.removesuffix("?") + "".join(used.values()) + ending
    spoken = {
        place: _spoken(rng, words, field) for place, field in enumerate(fields) if f"{{{place}}}" in template
    }
    text = template
    for place, (shown, _) in spoken.items():
        text = text.replace(f"{{{place}}}", shown)
    text = end_of(rng, text)
    arguments: list[tuple[Field, Value]] = []
    for place, (shown, argument) in sorted(spoken.items()):
        bare_text = shown.strip("\"'")
        value = Value(argument, bare=False) if argument is not None else found(text, bare_text)
        if argument is None and bare_text not in text:  # the first letter was made small
            value = Value(bare_text[0].lower() + bare_text[1:], bare=False)
        arguments.append((fields[place], value))
    return text, arguments


def stock_request(rng: Random, words: Words, held_out: bool) -> Request:
    """A request for a tool of the stock."""
    entry = rng.choice(tools_of_the_stock())
    named = rng.randrange(3)
    fields: list[Field] = []
    for place, (names, (kind, about)) in enumerate(entry["params"].items()):
        options = names.split("|")
        required = str(place) not in entry["options"]
        fields.append(Field(options[named % len(options)], kind, about, required))
    # Optional parameters are sometimes not declared; they are the last ones, so places stay what they are.
    while fields and not fields[-1].required and rng.random() < 0.35:
        fields.pop()
    if len({field.name for field in fields}) < len(fields):
        return stock_request(rng, words, held_out)
    ask = choose(rng, entry["asks"], held_out)
    used = {
        place: rng.choice(entry["options"][str(place)])
        for place, field in enumerate(fields)
        if not field.required and rng.random() < 0.45
    }
    text, arguments = _fill(rng, words, fields, ask, used, held_out)
    tool = declare(rng, rng.choice(entry["names"]), rng.choice(entry["about"]), fields)
    result = entry.get("result")
    return Request(tool, text, tuple(arguments), (tuple(result[0]), result[1]) if result else None)


def made_up_request(rng: Random, words: Words, held_out: bool) -> Request:
    """A request for a tool that nobody has seen: its name's and parameters' words are in the request."""
    verb = rng.choice(stock.lines("verbs.txt")) if rng.random() < 0.95 else words.common()
    noun = words.common()
    style = rng.random()
    second = f"_{words.common()}" if rng.random() < 0.15 else ""
    name = f"{verb}_{noun}{second}"
    if style < 0.12:
        name = verb + noun.capitalize()
    elif style < 0.16:
        name = f"{noun}_{verb}"
    names = rng.sample(stock.lines("parameters.txt"), rng.randrange(0, 5))
    names = [words.common() if rng.random() < 0.15 else one for one in names]
    kinds = [
        "query",
        "name",
        "person",
        "title",
        "small",
        "int",
        "float",
        "file",
        "id",
        "date",
        "email",
        "word",
    ]
    fields = []
    for one in dict.fromkeys(names):
        kind = rng.choice(kinds)
        if rng.random() < 0.15:
            kind = "enum:" + "|".join(dict.fromkeys(words.lower() for _ in range(rng.randrange(2, 5))))
        elif rng.random() < 0.08:
            kind = "switch"
        fields.append(Field(one, kind, f"The {one.replace('_', ' ')}", rng.random() < 0.8))
    given = [place for place, field in enumerate(fields) if field.required or rng.random() < 0.6]
    form = choose(
        rng, ["{p} {v}", "{p}: {v}", "{p} = {v}", "the {p} {v}", "{p} is {v}", "{p} set to {v}"], held_out
    )
    parts = []
    for place in given:
        spoken = "" if rng.random() < 0.05 else fields[place].name.replace("_", " ")
        parts.append(form.replace("{p}", spoken).replace("{v}", f"{{{place}}}").strip())
    what = noun + second.replace("_", " ")
    start = choose(
        rng,
        [
            f"{verb.capitalize()} the {what}",
            f"{verb} a {what}",
            f"Please {verb} the {what}",
            f"Can you {verb} {what}",
            f"I want to {verb} a {what}",
            f"I need you to {verb} the {what}",
            f"Now {verb} this {what}",
        ],
        held_out,
    )
    joined = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
    ask = start + (rng.choice((" with ", ", ", " using ", ": ")) + joined if parts else "")
    text, arguments = _fill(rng, words, fields, ask, {}, held_out)
    arguments.sort(key=lambda pair: fields.index(pair[0]))
    about = rng.choice(
        (f"{verb.capitalize()}s a {what}.", f"{verb.capitalize()} the {what}", f"Use it to {verb} a {what}")
    )
    return Request(declare(rng, name, about, fields), text, tuple(arguments))
