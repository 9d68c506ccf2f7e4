"""Restates the request in the thought before a call, with its values marked: "for [minutes: 10] minutes".

Finding a parameter's value in one step is hard for so few layers: "for" may come before or after the name,
and the text before a value rarely shows where it begins. So the model copies the request word by word, which
is easy, and at every word decides only whether a value begins here, of which parameter, or ends. The words
after it are already known. The call then finds the values by their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.tool_stock import Request
from recipe.text.talk import tokens_of
from recipe.text.vocabulary import encode, ordinary_bytes

LEADS, OPENS, NAMED, CLOSES = ":\n", " [", ":", "]"
# Text before a value that is no part of it: it follows the mark, as it does in the call.
BEFORE = frozenset({b" ", b' "', b'"', b" '", b"'"})


def takes_something(tool: FunctionTool) -> bool:
    """Whether it has parameters."""
    return bool((tool.parameters or {}).get("properties"))


def restated(request: Request) -> list[int]:
    """The request's own tokens, with marks around the values of arguments."""
    tokens = encode(request.text)
    ends = _ends(tokens)
    opening: dict[int, str] = {}
    closing: set[int] = set()
    for (field, _), span in zip(request.arguments, request.spans, strict=True):
        begin, end = (len(request.text[:place].encode()) for place in span)
        first = next(place for place, stop in enumerate(ends) if stop > begin)
        last = next(place for place, stop in enumerate(ends) if stop >= end)
        exactly = begin == (ends[first - 1] if first else 0)  # the token has no leading space
        if first and exactly and ordinary_bytes(tokens[first - 1]) in BEFORE:
            first -= 1
        opening[first] = field.name
        closing.add(last)
    out: list[int] = []
    for place, token in enumerate(tokens):
        if place in opening:
            out += [*tokens_of(OPENS), *encode(opening[place]), *tokens_of(NAMED)]
        out.append(token)
        if place in closing:
            out += tokens_of(CLOSES)
    return [*tokens_of(LEADS), *out]


def _ends(tokens: Sequence[int]) -> list[int]:
    """Where each of `tokens` ends, in bytes."""
    ends, place = [], 0
    for token in tokens:
        place += len(ordinary_bytes(token))
        ends.append(place)
    return ends
