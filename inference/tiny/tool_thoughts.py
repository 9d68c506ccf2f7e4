"""The analysis before a call or a refusal: a word of the request first, then the tool that it leads to.

To choose among tools in one step asks much of five layers: words of the request have to be found in the
declarations, and from there the name that belongs to each. So the model first writes down the word that
tells. Choosing it and going from it to a name are two easier steps, each with all layers to itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.tiny.talk import Value, message, write
from inference.tiny.tool_names import general_words, words_in, words_of
from inference.tiny.tool_stock import Offer, Request

# While the sentence about looking is written, the layers go over the request and the tools again.
_LOOK = "The user needs a tool. I look at the tools that I have. The word is {k},"
_NONE = {
    "low": " but none fits.",
    "medium": " but none of them fits.",
    "high": " but none of them fits, so I say so.",
}


def key_word(request: Request, offers: Sequence[Offer]) -> str:
    """The word that tells which tool is asked for, best one of its name that the user said.

    Else one of its description that the user said, else one of the name all the same.
    """
    tool = request.tool
    others = [offer.tool for offer in offers if offer.tool.name != tool.name]
    elsewhere = {word for other in others for word in words_of(other.name)}
    described_elsewhere = {word for other in others for word in words_in(other.description or "")}
    named = words_of(tool.name)
    general = general_words()

    def worth(word: str) -> tuple[bool, ...]:
        """The greater the better."""
        told = word in request.said or _bent(word, request.said)
        return (
            told and word not in general and word not in elsewhere,
            told and word not in elsewhere,
            told and word not in general,
            word in named,
            word not in general and word not in elsewhere,
            word in request.said,
            word not in described_elsewhere,
        )

    described = [word for word in words_in(tool.description or "") if len(word) > 3 and word in request.said]
    # Of two as good, the later one: "size" in file_size.
    return max(reversed([*described, *named]), key=worth)


def _bent(word: str, said: frozenset[str]) -> bool:
    """Whether another form of `word` was said: "wind" for "windy", "event" for "events"."""
    stem = word[: max(4, len(word) - 2)]
    return len(word) >= 4 and any(other.startswith(stem) and len(other) - len(stem) < 5 for other in said)


def choosing(effort: str, request: Request, offers: Sequence[Offer]) -> list[int]:
    """The analysis before a call; the more effort, the more of it."""
    values = {"k": Value(key_word(request, offers)), "f": Value(request.tool.name)}
    chosen = _LOOK + " so {f} fits"
    if effort == "low":
        return message("analysis", write(chosen + ".", values))
    if effort == "medium" or not request.arguments:
        return message("analysis", write(chosen + ", and I should call it.", values))
    body = write(chosen + ". Arguments:", values)
    for place, (field, value) in enumerate(request.arguments):
        body += write(' "{n}" is {v}', {"n": Value(field.name, bare=False), "v": value})
        body += write("." if place == len(request.arguments) - 1 else ",", {})
    return message("analysis", [*body, *write(" Now I call {f}.", values)])


def declining(effort: str, request: Request, offers: Sequence[Offer]) -> list[int]:
    """The analysis when nothing of what is declared fits."""
    values = {"k": Value(key_word(request, offers))}
    return message("analysis", write(_LOOK + _NONE[effort], values))
