"""The analysis before a call or a refusal: each declared function is looked at by itself, in turn.

To choose among functions in one step asks much of six layers: words of the request have to be found in the
declarations, or what they mean, and from there the name that belongs to each. So the model says one name
after the other, what it is for in front, and whether it fits, until one does. While these stand there, only
they have to be held against the request; which one is called is then the one that was said last. Then comes
the request once more, with its values marked (`restating.py`).

"And in Oslo?" is like no function. There the name of the last call is said first, as it stands in that call.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.copies import called_before
from recipe.functions.restating import restated, takes_something
from recipe.functions.tool_stock import Offer, Request
from recipe.text.talk import GOES_ON, Value, message, tokens_of, write

_FITS = {
    "low": " so {f} fits",
    "medium": " so {f} fits, and I should call it",
    "high": " so {f} fits, and I should call it. I look at what the user says once more",
}
_NONE = {
    "low": " but none fits.",
    "medium": " but none of them fits.",
    "high": " but none of them fits, so I say so.",
}


def _looks(offers: Sequence[Offer], wanted: str | None) -> list[int]:
    """The declared functions up to the one that is `wanted`, what each is for, and whether it fits."""
    out = write("The user needs a tool.", {})
    for offer in offers:
        name, line = offer.tool.name, purpose(offer.tool)
        asked = " {p}: {f}?" if line else " {f}?"
        fits = " yes," if name == wanted else " no,"
        out += write(asked + fits, {"p": Value(line), "f": Value(name)})
        if name == wanted:
            break
    return out


def purpose(tool: FunctionTool) -> str:
    """The first sentence of its description."""
    first = (tool.description or "").partition("\n")[0].partition(". ")[0]
    return first.strip().removesuffix(".")


def choice(effort: str, request: Request, offers: Sequence[Offer], past: Sequence[int] = ()) -> list[int]:
    """What is thought before a call until a function is chosen.

    `offers`: as they are declared. `past`: all that was said until now, where the last call is meant again.
    """
    if request.again:
        return _going_on(effort, request, past)
    return [*_looks(offers, request.tool.name), *write(_FITS[effort], {"f": Value(request.tool.name)})]


def _going_on(effort: str, request: Request, past: Sequence[int]) -> list[int]:
    """What is thought where the function that was called last is meant: its name comes from there."""
    called = called_before(past, len(past))
    (space,) = tokens_of(" ")
    name = [token for token in past[called.start : called.stop] if token != space]
    return [*tokens_of(GOES_ON), *name, *write("," + _FITS[effort], {"f": Value(request.tool.name)})]


def choosing(effort: str, request: Request, offers: Sequence[Offer], past: Sequence[int] = ()) -> list[int]:
    """The analysis before a call; the more effort, the more of it."""
    body = choice(effort, request, offers, past)
    if takes_something(request.tool):
        return message("analysis", [*body, *restated(request)])
    return message("analysis", [*body, *write(".", {})])


def declining(effort: str, offers: Sequence[Offer]) -> list[int]:
    """The analysis when nothing of what is declared fits."""
    return message("analysis", [*_looks(offers, None), *write(_NONE[effort], {})])
