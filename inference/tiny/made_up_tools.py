"""Tools that nobody has seen, of random words: they match requests by words alone."""

from __future__ import annotations

from random import Random

from inference.tiny import stock
from inference.tiny.tool_stock import DRAWN, KEPT_BACK, Field, Offer, Request, declare, filled, said_in
from inference.tiny.words import Words, choose

_KINDS = ("query", "name", "person", "title", "small", "int", "float", "file", "id", "date", "email", "word")
# Of each, the last ones are for the held-out part.
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
_FORMS = (
    "{p} {v}",
    "{p}: {v}",
    "{p} = {v}",
    "the {p} {v}",
    "{p} is {v}",
    "{v} as {p}",
    "{v} as the {p}",
    "the {p} is {v}",
    "{p}={v}",
    "{p} of {v}",
    "{p} being {v}",
    "{p} should be {v}",
    "the {p} should be {v}",
    "{p} must be {v}",
    "{p} equal to {v}",
    "{p} equals {v}",
    "{p} as {v}",
    "{p} given as {v}",
    "{p} -> {v}",
    "{p} will be {v}",
    "{p} to {v}",
    "{p} ({v})",
    "{p} named {v}",
    "the {p} named {v}",
    "whose {p} is {v}",
    "where {p} is {v}",
    "{p} here {v}",
    "{p} put at {v}",
    "{v} is the {p}",
    "{v} being the {p}",
    "{v} to be the {p}",
    "{v} in {p}",
    "{v} in the {p}",
    "{v} at {p}",
    "{v} into {p}",
    "{v} under {p}",
    "{v} on the {p}",
    "{v} ({p})",
    "{v} which is the {p}",
    "{v} goes to {p}",
    "set {p} to {v}",
    "a {p} of {v}",
    "its {p} is {v}",
    "with {p} {v}",
    "{p} changed to {v}",
    "{p} fixed at {v}",
    "{p} left at {v}",
    "{p} turned to {v}",
    "{p} moved to {v}",
    "{p} taken as {v}",
    "{p} chosen as {v}",
    "{p} written {v}",
    "{p} should read {v}",
    "{p} can be {v}",
    "{v} from {p}",
    "{v} onto {p}",
    "{v} per {p}",
    "{v} by {p}",
    "{v} with {p}",
    "{v} meant as {p}",
    "{v} used as {p}",
    "{v} chosen as the {p}",
    "{v} will be the {p}",
    "{p} set to {v}",
    "{v} for {p}",
)


def made_up_tool(rng: Random, words: Words, held_out: bool) -> Offer:
    """A tool that nobody has seen: its name's and parameters' words are in the requests for it."""
    verb = rng.choice(stock.lines("verbs.txt")) if rng.random() < 0.95 else words.common()
    things = [words.common() for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0])]
    style = rng.random()
    name = "_".join([verb, *things])
    if style < 0.2:
        name = verb + "".join(thing.capitalize() for thing in things)
    elif style < 0.25:
        name = "_".join([*things, verb])
    names = rng.sample(stock.lines("parameters.txt"), rng.randrange(0, 5))
    names = [words.common() if rng.random() < 0.6 else one for one in names]
    fields = []
    for one in dict.fromkeys(names):
        kind = rng.choice(_KINDS)
        if rng.random() < 0.15:
            kind = f"{DRAWN}:" + "|".join(dict.fromkeys(words.lower() for _ in range(rng.randrange(2, 5))))
        elif rng.random() < 0.08:
            kind = "switch"
        fields.append(Field(one, kind, f"The {one.replace('_', ' ')}", rng.random() < 0.8))
    what = " ".join(things)
    about = rng.choice(
        (f"{verb.capitalize()}s a {what}.", f"{verb.capitalize()} the {what}", f"Use it to {verb} a {what}")
    )
    # Some are asked for by a word that only their description has, or by one part of their name.
    described = words.common() if rng.random() < 0.25 else None
    if described:
        about = f"{verb.capitalize()} the {what} {rng.choice(('of', 'for', 'in'))} a {described}"
    tool = declare(rng, name, about, fields)
    askable = [what, *things]
    if described and tool.description:
        askable.append(described)

    def request() -> Request:
        given = [place for place, field in enumerate(fields) if field.required or rng.random() < 0.6]
        if rng.random() < 0.3:
            rng.shuffle(given)
        form = choose(rng, _FORMS, held_out, KEPT_BACK)
        parts = []
        for place in given:
            spoken = "" if len(given) == 1 and rng.random() < 0.1 else fields[place].name.replace("_", " ")
            gap = f"{{{place}}}"
            parts.append(form.replace("{p}", spoken).replace("{v}", gap) if spoken else gap)
        ask = choose(rng, _STARTS, held_out)
        said = what if rng.random() < 0.5 else rng.choice(askable)
        ask = ask.replace("{V}", verb.capitalize()).replace("{v}", verb).replace("{n}", said)
        joined = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)
        if parts:
            ask += rng.choice((" with ", ", ", " using ", ": ", " - ")) + joined
        text, arguments = filled(rng, words, fields, ask, {})
        in_order = tuple(sorted(arguments, key=lambda pair: fields.index(pair[0])))
        return Request(tool, text, in_order, said_in(ask))

    return Offer(tool, request)
