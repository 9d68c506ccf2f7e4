"""The request once more, in the thought before a call, with its values marked: "for [minutes: 10] minutes".

To find in one step what belongs to a parameter asks much of six layers: "for" may stand before its name or
behind, and where a value begins is seldom told by what stands before it. So the model says the request
again, word by word, which is the easiest of copies. At every word there is one thing to decide: whether a
value begins here, and of which parameter, or ends. What comes behind it can be looked at by now. For the call
itself the values are then found by their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.tool_stock import Request
from recipe.text.talk import tokens_of
from recipe.text.vocabulary import encode, ordinary_bytes

LEADS, OPENS, NAMED, CLOSES = ":\n", " [", ":", "]"
# What may stand before a value and is no part of it: it is said after the mark, as it is in the call.
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
        first = next(place for place, behind in enumerate(ends) if behind > begin)
        last = next(place for place, behind in enumerate(ends) if behind >= end)
        exactly = begin == (ends[first - 1] if first else 0)  # the token has no space of its own
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
