"""The analysis before a call or a refusal: the model considers each declared function in turn.

Choosing among functions in one step is hard for so few layers: they would have to find words of the request,
or their meanings, in the declarations, and from there the name. So the model writes one function after the
other, its purpose, its name and whether it fits, until one does. It then has to compare only that text with
the request, and calls the function that it wrote last. After that it restates the request with its values
marked (`restating.py`).

"And in Oslo?" resembles no function. There the thought begins with the name of the last call.
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
    """The declared functions up to `wanted`, each with its purpose and whether it fits."""
    out = write("The user needs a tool.", {})
    for offer in offers:
        name, line = offer.tool.name, purpose(offer.tool)
        question = " {p}: {f}?" if line else " {f}?"
        fits = " yes," if name == wanted else " no,"
        out += write(question + fits, {"p": Value(line), "f": Value(name)})
        if name == wanted:
            break
    return out


def purpose(tool: FunctionTool) -> str:
    """The first sentence of its description."""
    first = (tool.description or "").partition("\n")[0].partition(". ")[0]
    return first.strip().removesuffix(".")


def choice(effort: str, request: Request, offers: Sequence[Offer], past: Sequence[int] = ()) -> list[int]:
    """The thought before a call, up to the choice of a function.

    `offers` are in order of declaration. `past`: all tokens so far, if the request means the last call again.
    """
    if request.again:
        return _continuing(effort, request, past)
    return [*_looks(offers, request.tool.name), *write(_FITS[effort], {"f": Value(request.tool.name)})]


def _continuing(effort: str, request: Request, past: Sequence[int]) -> list[int]:
    """The thought if the request means the last called function: it copies the name from that call."""
    called = called_before(past, len(past))
    (space,) = tokens_of(" ")
    name = [token for token in past[called.start : called.stop] if token != space]
    return [*tokens_of(GOES_ON), *name, *write("," + _FITS[effort], {"f": Value(request.tool.name)})]


def choosing(effort: str, request: Request, offers: Sequence[Offer], past: Sequence[int] = ()) -> list[int]:
    """The analysis before a call; the more effort, the longer."""
    body = choice(effort, request, offers, past)
    if takes_something(request.tool):
        return message("analysis", [*body, *restated(request)])
    return message("analysis", [*body, *write(".", {})])


def declining(effort: str, offers: Sequence[Offer]) -> list[int]:
    """The analysis if no declared function fits."""
    return message("analysis", [*_looks(offers, None), *write(_NONE[effort], {})])
