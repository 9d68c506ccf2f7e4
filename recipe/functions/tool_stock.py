"""Tools and requests for them: those of the stock, and the parts that made-up ones share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.tool_names import RENAMED, renamed, taken_apart, words_in
from recipe.text import stock
from recipe.text.asides import with_an_aside
from recipe.text.talk import Value
from recipe.text.words import Words, choose, typed_kinds

DRAWN = "drawn"  # the kind of an enumeration of words that may be new
_TRIES = 3  # to find a wording that shares a word with the tool
_ANY_WORDING = 0.5  # of the wordings in training are unfiltered: those that share no word are the hardest
_AFTER_NAMES = 0.1  # of the wordings in training have a random word after a name
_LONGEST_UNIT = 3  # letters: " Mm" is not "mm"
# Of the options: requested with a capital although declared without, so not copied verbatim.
_GROWN, _GROWN_IN_TRAINING = 0.2, 0.4
_NAMES = ("city", "person", "name")
_TYPED = 0.6  # of the stock's parameters in training whose values have a specific kind
_RENAMED_IN_SETS, _PARAMETER_RENAMED, _PARAMETER_RENAMED_IN_SETS = 0.2, 0.4, 0.1
# Kinds whose values are never quoted.
_NEVER_QUOTED = frozenset({"small", "int", "float", "time", "date", "when", "duration", "weekday", "month"})
_NEVER_QUOTED |= {"currency", "ticker", "phone", "ip", "version", "unit"}
_QUOTED, _QUOTED_TYPED = (0.28, 0.36), (0.11, 0.14)  # in double quotes, in any quotes
# Kinds whose quoted values may end like sentences: `?"` is one token there, but not in the call.
_WHOLE_SENTENCES = frozenset({"sentence", "message", "phrase", "question", "note"})
_WITH_ITS_OWN_END = 0.06
_PLAIN, _CLASSICS = 0.5, 0.2  # of the sets of tools
_GAP = re.compile(r"\{(\d+)\}")
KEPT_BACK = 2  # the last wordings of a tool, questions and forms: no version of the stock trained on them


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter as declared: its type, its options, whether it is required."""

    name: str
    kind: str
    about: str = ""
    required: bool = True

    @property
    def options(self) -> list[str]:
        kind, _, options = self.kind.partition(":")
        return options.split("|") if kind in ("enum", DRAWN) else []

    @property
    def json_type(self) -> str:
        if self.kind in ("small", "int"):
            return "integer"
        if self.kind == "float":
            return "number"
        return "boolean" if self.kind.startswith("bool:") or self.kind == "switch" else "string"


@dataclass(frozen=True, slots=True)
class Request:
    """A tool, the user's request for it, and the resulting arguments."""

    tool: FunctionTool
    text: str
    arguments: tuple[tuple[Field, Value], ...]
    spans: tuple[tuple[int, int], ...]  # the place of each argument in the text
    wording: frozenset[str]  # the words of the request without its values, in lower case
    answer: tuple[tuple[str, ...], str] | None = None  # keys of a usual result, and a sentence about them
    again: bool = False  # whether it means the last called function, which the text does not name


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool, and a source of requests for it."""

    tool: FunctionTool
    request: Callable[[], Request]
    entry: dict[str, Any] | None = None  # of the stock


@cache
def tools_of_the_stock() -> list[dict[str, Any]]:
    return [entry for name in stock.TOOLS for entry in stock.parsed(name)]


@cache
def sets_of_tools(files: tuple[str, ...] = stock.SETS) -> list[list[dict[str, Any]]]:
    """Tools of one area each, such that no request for one fits another; only for training."""
    return [
        [{**entry, "set": one["set"]} for entry in one["tools"]]
        for name in files
        for one in stock.parsed(name)
    ]


def a_set_of_tools(rng: Random) -> list[dict[str, Any]]:
    """One of the sets, more often one that is usual in demonstrations of function calling."""
    roll = rng.random()
    usual = stock.PLAIN if roll < _PLAIN else (stock.CLASSICS,) if roll < _PLAIN + _CLASSICS else stock.SETS
    return rng.choice(sets_of_tools(usual))


@cache
def _kinds_of_parameters() -> dict[tuple[str, str], str]:
    """The kind of a parameter's usual values, by tool and parameter."""
    parts = (line.split() for line in stock.lines("kinds_of_params.txt"))
    return {(tool, parameter): kind for tool, parameter, kind in parts}


@cache
def usual_tools() -> list[dict[str, Any]]:
    """The most requested tools, such as the weather, whose results have a usual form."""
    return [entry for entry in tools_of_the_stock() if "result" in entry]


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
    """`value`, sometimes in quotes."""
    if kind in _NEVER_QUOTED:
        return value
    roll = rng.random()
    double, any_kind = _QUOTED_TYPED if kind in typed_kinds() else _QUOTED
    if roll < double:
        return f'"{value}"'
    return f"'{value}'" if roll < any_kind and "'" not in value else value


def found(text: str, value: str) -> Value:
    """`value` as a copy from `text`, with the space before it if there is one."""
    return Value(value, bare=f" {value}" in text)


def _spoken(rng: Random, words: Words, field: Field) -> tuple[str, str | None]:
    """The user's words for a parameter, and the argument's text if it differs from them."""
    if field.options:
        value = rng.choice(field.options)
        known = field.kind.startswith("enum:")  # the model can learn that " High" is "high", but not any word
        share = _GROWN if words.held_out else _GROWN_IN_TRAINING
        grown = known and value.islower() and rng.random() < share and len(value) > _LONGEST_UNIT
        shown = value.capitalize() if grown else value
        return shown, value
    if field.kind.startswith("bool:"):
        return rng.choice(field.kind.removeprefix("bool:").split("|")), "true"
    if field.kind == "switch":
        on = rng.random() < 0.5
        return ("on" if on else "off"), ("true" if on else "false")
    value = words.draw("word" if field.kind == "lower" else field.kind)
    if field.kind in _WHOLE_SENTENCES and not words.held_out and rng.random() < _WITH_ITS_OWN_END:
        return f'"{value}{rng.choice("?!.")}"', None
    return quoted(rng, field.kind, value), None


def end_of(rng: Random, text: str) -> str:
    """`text` with an ending that people type."""
    if text.endswith(("?", ".")):
        return text if rng.random() < 0.8 else text[:-1]
    roll = rng.random()
    text += "." if roll < 0.35 else "!" if roll < 0.38 else " please" if roll < 0.43 else ""
    return text if rng.random() < 0.75 or not text[0].isupper() else text[0].lower() + text[1:]


def filled(
    rng: Random, words: Words, fields: list[Field], ask: str, used: dict[int, str]
) -> tuple[str, list[tuple[Field, Value]], list[tuple[int, int]]]:
    """The text of a request, its arguments, and the place of each in the text."""
    ending = "?" if ask.endswith("?") else ""
    template = ask.removesuffix("?") + "".join(used.values()) + ending
    spoken = {
        place: _spoken(rng, words, field) for place, field in enumerate(fields) if f"{{{place}}}" in template
    }
    text, done = "", 0
    spans: dict[int, tuple[int, int]] = {}
    for gap in _GAP.finditer(template):
        place = int(gap.group(1))
        shown, _ = spoken[place]
        text += template[done : gap.start()]
        inner = shown.strip("\"'")
        if text.endswith(('"', "'")):  # the wording already has quotes
            shown = inner
        begin = len(text) + shown.index(inner)
        spans.setdefault(place, (begin, begin + len(inner)))
        text, done = text + shown, gap.end()
    text = end_of(rng, text + template[done:])
    arguments: list[tuple[Field, Value]] = []
    for place, (shown, argument) in sorted(spoken.items()):
        bare_text = shown.strip("\"'")
        # An option is copied from the request, like any value, if it is written there as declared.
        wanted = bare_text if argument is None else argument
        if argument is None and bare_text not in text:  # the first letter became lower case
            wanted = bare_text[0].lower() + bare_text[1:]
        arguments.append((fields[place], found(text, wanted)))
    return text, arguments, [spans[place] for place in sorted(spoken)]


def words_of_wording(ask: str) -> frozenset[str]:
    """The words of a wording, without its gaps."""
    return frozenset(words_in(re.sub(r"\{\w+\}", " ", ask)))


def _words(text: str) -> set[str]:
    """Its words of four letters and more; names are split into words."""
    return set(re.findall(r"[a-z]{4,}", taken_apart(text).lower()))


def _ask_for(rng: Random, words: Words, tool: FunctionTool, asks: list[str]) -> str:
    """One of `asks`, mostly one that shares a word with the tool's declaration."""
    declared = _words(f"{tool.name} {tool.description or ''}")
    for _ in range(1 if not words.plain and rng.random() < _ANY_WORDING else _TRIES):
        ask = choose(rng, asks, words.held_out, KEPT_BACK)
        if _words(ask) & declared:
            break
    return ask


def _with_a_word_after(rng: Random, words: Words, fields: list[Field], ask: str) -> str:
    """`ask` with a word after a name, which teaches that a name ends with its capitalised words.

    With the wordings alone the model learns the following words by heart: "which grade Jaxon got" gave "Jaxon
    got".
    """
    places = [place for place, field in enumerate(fields) if field.kind in _NAMES and f"{{{place}}} " in ask]
    if not places:
        return ask
    gap = f"{{{rng.choice(places)}}} "
    return ask.replace(gap, f"{gap}{words.common()} ")


def stock_tool(
    rng: Random, words: Words, held_out: bool, entries: Sequence[dict[str, Any]] | None = None
) -> Offer:
    """A tool of the stock, or of these `entries` of it."""
    entry = rng.choice(entries or (usual_tools() if rng.random() < 0.3 else tools_of_the_stock()))
    named = rng.randrange(12)
    of_a_set = "set" in entry
    fields: list[Field] = []
    for place, (names, (kind, about)) in enumerate(entry["params"].items()):
        options = names.split("|")
        if not words.plain and rng.random() < _TYPED:
            kind = _kinds_of_parameters().get((entry["names"][0], options[0]), kind)
        required = str(place) not in entry.get("options", {})
        fields.append(Field(options[named % len(options)], kind, about, required))
    # Optional parameters are sometimes not declared; they are the last ones, so places do not change.
    while fields and not fields[-1].required and rng.random() < 0.35:
        fields.pop()
    # The name of a single parameter does not matter: the model must read it in the declaration.
    if len(fields) == 1 and rng.random() < (_PARAMETER_RENAMED_IN_SETS if of_a_set else _PARAMETER_RENAMED):
        fields = [replace(fields[0], name=words.common())]
    if len({field.name for field in fields}) < len(fields):
        return stock_tool(rng, words, held_out, entries)
    other_name = not words.plain and rng.random() < (_RENAMED_IN_SETS if of_a_set else RENAMED)
    name = renamed(rng, words, entry["names"]) if other_name else rng.choice(entry["names"])
    tool = declare(rng, name, rng.choice(entry["about"]), fields)
    result = entry.get("result")

    def request() -> Request:
        ask = _ask_for(rng, words, tool, entry["asks"])
        wording = words_of_wording(ask)
        if not words.plain and rng.random() < _AFTER_NAMES:
            ask = _with_a_word_after(rng, words, fields, ask)
        if not words.plain:
            ask = with_an_aside(rng, [field.kind for field in fields], ask)
        used = {
            place: rng.choice(entry["options"][str(place)])
            for place, field in enumerate(fields)
            if not field.required and rng.random() < 0.45
        }
        text, arguments, spans = filled(rng, words, fields, ask, used)
        usual = (tuple(result[0]), result[1]) if result else None
        return Request(tool, text, tuple(arguments), tuple(spans), wording, usual)

    return Offer(tool, request, entry)
