"""Tools of random words, which the model has never seen: they match requests by words alone."""

from __future__ import annotations

from functools import cache
from random import Random

from recipe.functions.tool_stock import (
    DRAWN,
    KEPT_BACK,
    Field,
    Offer,
    Request,
    declare,
    filled,
    words_of_wording,
)
from recipe.text import stock
from recipe.text.asides import with_an_aside
from recipe.text.like_words import like_words
from recipe.text.meanings import meanings
from recipe.text.words import Words, choose

_KINDS = ("query", "name", "person", "title", "small", "int", "float", "file", "id", "date", "email", "word")
# Training also has words that split into pieces without a leading space: as values of a call the model copies
# them worst.
_KINDS_IN_TRAINING = (*_KINDS, "split", "split", "word")
# The last of each list are for the held-out part.
_STARTS = (
    "{V} the {n}",
    "{v} a {n}",
    "Please {v} the {n}",
    "Can you {v} {n}",
    "I want to {v} a {n}",
    "I need you to {v} the {n}",
    "Now {v} the {n}",
    "Could you {v} this {n}",
    "{V} this {n} for me",
    "{V} my {n}",
    "{V} {n}",
    "Let us {v} the {n} now",
    "I would like to {v} the {n}",
    "You should {v} that {n}",
    "Go and {v} the {n}",
    "We have to {v} one {n}",
    "Now {v} this {n}",
    "Please {v} a {n} for me",
)
# Without the verb of the name, so that the thing decides.
_WITHOUT_VERB = (
    "I need the {n}",
    "I need a {n}",
    "It is about the {n}",
    "It is about my {n}",
    "This is for the {n}",
    "Something for my {n}",
    "Help me with the {n}",
    "Let me have the {n}",
    "I am looking for a {n}",
    "Give me {n}",
    "Tell me about the {n}",
    "Something is wrong with my {n}",
    "I would like {n}",
    "Do what is to be done about the {n}",
    "My {n}",
    "The {n}",
)
_IN_OTHER_WORDS = 0.4  # of the requests in training, if words of similar meaning are known
# Of the requests in training, with a new form. With the stock's forms alone the model learns their words by
# heart: "earth zebra height" came out right in 59 of 128 such cases, "earth in height" in 105.
_NEW_FORM = 0.4
_NEW_FORMS = (
    *("{v} {w} {p}",) * 5,
    "{v} {w} the {p}",
    "{v} {w} its {p}",
    "{p} {w} to {v}",
    "{p} {w} as {v}",
    "{p} {w} at {v}",
    "{p} {w} by {v}",
    "the {p} {w} to {v}",
)
# With two parameters or more, only the repetition shows where a value begins or ends.
_REPEATED_FORMS = ("{p} {w} {v}", "{v} {w} {w2} {p}")
# One of the most common words joins them. Words from the whole vocabulary, and of syllables, are harder than
# any request: they caused most of the training's errors.
_COMMONEST = 2000


@cache
def _words_kept_back() -> frozenset[str]:
    """The words of the forms for the held-out part."""
    return frozenset(" ".join(stock.lines("forms.txt")[-KEPT_BACK:]).split())


@cache
def _joints() -> tuple[str, ...]:
    """Words for new forms; without "and", which joins parameters."""
    commonest = list(meanings()[0])[:_COMMONEST]
    return tuple(word for word in commonest if word not in _words_kept_back() | {"and"})


def _form(rng: Random, words: Words, several: bool) -> str:
    """The wording of a parameter {p} and its value {v}."""
    if words.plain or rng.random() >= _NEW_FORM:
        return choose(rng, stock.lines("forms.txt"), words.held_out, KEPT_BACK)
    form = rng.choice((*_NEW_FORMS, *_REPEATED_FORMS) if several else _NEW_FORMS)
    for gap in ("{w}", "{w2}"):
        form = form.replace(gap, rng.choice(_joints()))
    return form


def made_up_tool(rng: Random, words: Words, held_out: bool) -> Offer:
    """A new tool. The requests for it contain the words of its name and parameters."""
    verb = rng.choice(stock.lines("verbs.txt")) if rng.random() < 0.95 else words.common()
    things = [words.common() for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0])]
    style = rng.random()
    name = "_".join([verb, *things])
    if style < 0.2:
        name = verb + "".join(thing.capitalize() for thing in things)
    elif style < 0.25:
        name = "_".join([*things, verb])
    fields = _fields(rng, words)
    what = " ".join(things)
    about = rng.choice(
        (f"{verb.capitalize()}s a {what}.", f"{verb.capitalize()} the {what}", f"Use it to {verb} a {what}")
    )
    # Some requests use a word that only the description has, or one part of the name.
    described = words.common() if rng.random() < 0.25 else None
    if described:
        about = f"{verb.capitalize()} the {what} {rng.choice(('of', 'for', 'in'))} a {described}"
    tool = declare(rng, name, about, fields)
    mentions = [what, *things]
    if described and tool.description:
        mentions.append(described)
    like = [other for thing in things for other in like_words(thing)]

    def request() -> Request:
        given = [place for place, field in enumerate(fields) if field.required or rng.random() < 0.6]
        if rng.random() < 0.3:
            rng.shuffle(given)
        form = _form(rng, words, len(given) > 1)
        parts = []
        for place in given:
            spoken = "" if len(given) == 1 and rng.random() < 0.1 else fields[place].name.replace("_", " ")
            gap = f"{{{place}}}"
            parts.append(form.replace("{p}", spoken).replace("{v}", gap) if spoken else gap)
        ask = choose(rng, _STARTS, held_out)
        mention = what if rng.random() < 0.5 else rng.choice(mentions)
        if not words.plain and like and rng.random() < _IN_OTHER_WORDS:
            mention = rng.choice(like)
            ask = rng.choice(_WITHOUT_VERB) if rng.random() < 0.6 else ask
        ask = ask.replace("{V}", verb.capitalize()).replace("{v}", verb).replace("{n}", mention)
        joined = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
        if parts:
            ask += rng.choice((" with ", ", ", " using ", ": ", " - ")) + joined
        if not words.plain:
            ask = with_an_aside(rng, [field.kind for field in fields], ask)
        text, arguments, spans = filled(rng, words, fields, ask, {})
        return Request(tool, text, tuple(arguments), tuple(spans), words_of_wording(ask))

    return Offer(tool, request)


def _fields(rng: Random, words: Words) -> list[Field]:
    names = rng.sample(stock.lines("parameters.txt"), rng.randrange(0, 5))
    names = [words.common() if rng.random() < 0.6 else one for one in names]
    fields = []
    for one in dict.fromkeys(names):
        kind = rng.choice(_KINDS if words.plain else _KINDS_IN_TRAINING)
        if rng.random() < 0.15:
            kind = f"{DRAWN}:" + "|".join(dict.fromkeys(words.lower() for _ in range(rng.randrange(2, 5))))
        elif rng.random() < 0.08:
            kind = "switch"
        fields.append(Field(one, kind, f"The {one.replace('_', ' ')}", rng.random() < 0.8))
    return fields
