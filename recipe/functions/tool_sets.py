"""Decides which tools are declared together.

Mostly no request fits two of them by its subject. But tools that never appear together teach the model that
the subject decides: with a pollen tool present, a question about the forecast went to it. So in training some
sets have tools for similar things, and requests with a word that only one of them has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

from recipe.functions.made_up_tools import made_up_tool
from recipe.functions.tool_names import general_words, words_in, words_of
from recipe.functions.tool_stock import (
    Offer,
    Request,
    a_set_of_tools,
    sets_of_tools,
    stock_tool,
    tools_of_the_stock,
)
from recipe.text import stock
from recipe.text.words import Words

# Of the tools. Training has more of them than held-out cases: only words identify their values, so they fail
# most.
_MADE_UP, _MADE_UP_IN_TRAINING = 0.3, 0.45
_LIKE = 0.25  # of the sets: tools for similar things
_OF_A_SET = 0.3  # of the sets: tools of one area (stock/sets_*.json)
_WITH_OTHERS = 0.3  # of those: with some tools for other purposes
_TRIES = 12  # to find a request that identifies one of them


def some_tools(
    rng: Random, words: Words, held_out: bool, most: int, made_up: float | None = None
) -> list[Offer]:
    """Tools that are declared together: no request for one fits another.

    `made_up`: the share of made-up tools, if not the usual one.
    """
    if not words.plain and made_up != 1 and rng.random() < _OF_A_SET:
        return tools_of_a_set(rng, words, most)
    if not words.plain and most > 1 and made_up != 1 and rng.random() < _LIKE:
        return tools_for_like_things(rng, words, most)
    found: dict[str, Offer] = {}
    for _ in range(rng.randrange(most) + 1):
        _add_unlike(found, _a_tool(rng, words, held_out, made_up))
    return list(found.values())


def _add_unlike(found: dict[str, Offer], other: Offer) -> None:
    """Adds `other`, unless a request for it could fit one of `found`."""
    if not any(_alike(other.tool.name, name) for name in found):
        found[other.tool.name] = other


def one_more_tool(
    rng: Random, words: Words, held_out: bool, tools: Sequence[Offer], made_up: float | None = None
) -> Offer:
    """A tool whose requests fit none of `tools`."""
    if not words.plain and made_up != 1 and rng.random() < _OF_A_SET:
        return _one_more_of_a_set(rng, words, tools)
    while True:
        other = _a_tool(rng, words, held_out, made_up)
        if any(one.entry and "set" in one.entry for one in tools):
            if all(_far(other, one) for one in tools):
                return other
        elif not any(_alike(other.tool.name, one.tool.name) for one in tools):
            return other


def tools_of_a_set(rng: Random, words: Words, most: int) -> list[Offer]:
    """Tools of one area, as one server would declare them; sometimes with others."""
    entries = a_set_of_tools(rng)
    chosen = rng.sample(entries, min(len(entries), rng.randrange(most) + 1))
    found = {offer.tool.name: offer for offer in (stock_tool(rng, words, False, [one]) for one in chosen)}
    if rng.random() < _WITH_OTHERS:
        for _ in range(most - len(found)):
            other = _a_tool(rng, words, False)
            if all(_far(other, one) for one in found.values()):
                found[other.tool.name] = other
    return rng.sample(list(found.values()), len(found))


def _one_more_of_a_set(rng: Random, words: Words, tools: Sequence[Offer]) -> Offer:
    """A tool whose requests fit none of `tools`: from the same area, or unrelated to all."""
    names = {one.entry["names"][0] for one in tools if one.entry}
    areas = {one.entry["set"] for one in tools if one.entry and "set" in one.entry}
    if areas and all(one.entry and one.entry.get("set") in areas for one in tools) and rng.random() < 0.5:
        left = [
            entry
            for entries in sets_of_tools()
            for entry in entries
            if entry["set"] in areas and entry["names"][0] not in names
        ]
        if left:
            return stock_tool(rng, words, False, left)
    while True:
        other = stock_tool(rng, words, False, a_set_of_tools(rng))
        if all(_far(other, one) for one in tools):
            return other


def _far(one: Offer, other: Offer) -> bool:
    """Whether they share no word about their purpose."""
    return not _alike(one.tool.name, other.tool.name) and not (
        _subjects(_all_words(one)) & _subjects(_all_words(other))
    )


def _all_words(offer: Offer) -> list[str]:
    """The words of all its names and descriptions, declared or not."""
    return [*_declared(offer), *(_words_of_entry(offer.entry) if offer.entry else [])]


def _words_of_entry(entry: dict[str, Any]) -> list[str]:
    return [word for text in (*entry["names"], *entry["about"]) for word in words_of(text)]


def may_mean_both(entries: Sequence[dict[str, Any]]) -> list[list[bool]]:
    """For every two entries of the stock, whether a request for one could be meant for the other."""
    subjects = [_subjects(_words_of_entry(entry)) for entry in entries]
    kinds = [
        {at for at, line in enumerate(stock.lines("alike.txt")) if _holds(entry["names"][0], line)}
        for entry in entries
    ]

    def both(one: int, other: int) -> bool:
        if "set" in entries[one] and entries[one]["set"] == entries[other].get("set"):
            return one == other  # no two tools of a set overlap
        return bool(subjects[one] & subjects[other] or kinds[one] & kinds[other])

    return [[both(one, other) for other in range(len(entries))] for one in range(len(entries))]


def in_turn(rng: Random, offers: Sequence[Offer]) -> Iterator[Offer]:
    """Endless; repeats none before all were used: the model easily repeats an earlier call."""
    while True:
        yield from rng.sample(offers, len(offers))


def _a_tool(rng: Random, words: Words, held_out: bool, made_up: float | None = None) -> Offer:
    share = (_MADE_UP if words.plain else _MADE_UP_IN_TRAINING) if made_up is None else made_up
    make = made_up_tool if rng.random() < share else stock_tool
    return make(rng, words, held_out)


def _alike(one: str, other: str) -> bool:
    """Whether both may do the same, so that a request for one fits the other."""
    return any(_holds(one, line) and _holds(other, line) for line in stock.lines("alike.txt"))


def _holds(name: str, line: str) -> bool:
    """Whether one of the line's words is in `name`."""
    return any(word in name.lower() for word in line.split())


@cache
def _groups() -> list[list[dict[str, Any]]]:
    """Groups of two or more of the stock's tools for similar things."""
    groups = [
        [entry for entry in tools_of_the_stock() if any(_holds(name, line) for name in entry["names"])]
        for line in stock.lines("alike.txt")
    ]
    return [group for group in groups if len(group) > 1]


def tools_for_like_things(rng: Random, words: Words, most: int) -> list[Offer]:
    group = rng.choice(_groups())
    entries = rng.sample(group, min(len(group), rng.randrange(2, max(3, most + 1))))
    found = {offer.tool.name: offer for offer in (stock_tool(rng, words, False, [one]) for one in entries)}
    for _ in range(rng.randrange(max(1, most - len(found) + 1))):
        _add_unlike(found, _a_tool(rng, words, False))
    offers = list(found.values())
    specific = [_with_specific_requests(offer, offers) for offer in offers]
    return [offer for offer in specific if offer] or some_tools(rng, words, False, most)


def _with_specific_requests(offer: Offer, offers: Sequence[Offer]) -> Offer | None:
    """`offer` with only requests that contain a word of its own and none of the others'.

    None if it finds no such request.
    """
    own = _subjects(_declared(offer))
    elsewhere = {word for one in offers if one is not offer for word in _subjects(_declared(one))}

    def specific() -> Request | None:
        for _ in range(_TRIES):
            request = offer.request()
            subjects = _subjects(request.wording)
            if subjects & own and not subjects & elsewhere:
                return request
        return None

    first = specific()
    return replace(offer, request=lambda: specific() or first) if first else None


def _declared(offer: Offer) -> list[str]:
    return [*words_of(offer.tool.name), *words_in(offer.tool.description or "")]


def _subjects(words: Iterable[str]) -> set[str]:
    """The beginnings of the longer words, so that "flights" equals "flight"."""
    return {word[:5] for word in words if len(word) > 3 and word not in general_words()}
