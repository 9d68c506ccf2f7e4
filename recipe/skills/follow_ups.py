"""The same function once more with another value: "And in Oslo?".

Such a request does not name its function: it means the last called one.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from recipe.functions.tool_stock import Field, Request, found, quoted
from recipe.text.words import Words

_PLAIN_KINDS = ("city", "person", "query", "name", "title", "file", "path")
_WHERE = ("city", "country", "room")
_FORMS = (
    "And {v}?",
    "And {v}?",
    "and {v}",
    "And what about {v}?",
    "What about {v}?",
    "How about {v}?",
    "And now {v}",
    "And now for {v} please",
    "Now {v}",
    "Now for {v}",
    "Now the same for {v}",
    "The same for {v}, please",
    "Same for {v}",
    "Do that for {v} too",
    "Also {v}",
    "Also for {v}, thanks",
    "OK, and {v}?",
    "Once more, this time {v}",
    "Then {v}.",
    "{v} too please",
    "{v} as well",
)


def again(rng: Random, words: Words, request: Request) -> Request | None:
    """Such a request for the function of `request`; None unless that has exactly one argument."""
    if len(request.arguments) != 1:
        return None
    field, _ = request.arguments[0]
    if not (field.kind in _PLAIN_KINDS if words.plain else _is_free(field)):
        return None
    value = words.draw("word" if field.kind == "lower" else field.kind)
    if words.plain:
        shown, form = value, "And {v}?" if rng.random() < 0.7 else "Now for {v}"
        where = "in " if field.kind == "city" and form.startswith("And") else ""
    else:
        shown, form = quoted(rng, field.kind, value), rng.choice(_FORMS)
        where = "in " if field.kind in _WHERE and rng.random() < 0.5 else ""
    text = form.replace("{v}", where + shown)
    begin = form.index("{v}") + len(where) + shown.index(value)
    spans = ((begin, begin + len(value)),)
    return replace(request, text=text, arguments=((field, found(text, value)),), spans=spans, again=True)


def _is_free(field: Field) -> bool:
    """Whether its value may be any text, and is copied verbatim."""
    return not field.options and field.kind != "switch" and not field.kind.startswith("bool:")
