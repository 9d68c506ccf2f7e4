"""The tools that training declares together, their names, and the requests for them."""

from __future__ import annotations

import re
from itertools import islice
from random import Random

import pytest

from recipe.functions.tool_names import general_words, renamed, words_in, words_of
from recipe.functions.tool_sets import in_turn, some_tools, tools_for_like_things
from recipe.functions.tool_stock import Offer, stock_tool, tools_of_the_stock, words_of_wording
from recipe.text import stock
from recipe.text.words import Words


def subjects(*texts: str | None) -> set[str]:
    """The beginnings of specific words."""
    words = {word for text in texts if text for word in words_of(text)}
    return {word[:5] for word in words if len(word) > 3 and word not in general_words()}


def test_all_tools_are_requested_before_one_is_requested_again() -> None:
    rng = Random("in turn")
    offers: list[Offer] = []
    while len(offers) < 3:
        offers = some_tools(rng, Words(rng, False), False, 6)
    names = [offer.tool.name for offer in islice(in_turn(rng, offers), 3 * len(offers))]
    for first in range(0, len(names), len(offers)):
        assert sorted(names[first : first + len(offers)]) == sorted(offer.tool.name for offer in offers)


def test_requests_for_similar_tools_have_a_word_that_no_other_tool_has() -> None:
    counted = 0
    for seed in range(60):
        rng = Random(f"like/{seed}")
        offers = tools_for_like_things(rng, Words(rng, False), 6)
        for offer in offers:
            request = offer.request()
            assert request.tool is offer.tool
            others = [one.tool for one in offers if one is not offer]
            elsewhere = subjects(*(text for tool in others for text in (tool.name, tool.description)))
            own = subjects(*request.wording)
            assert not own & elsewhere, (request.text, elsewhere)
            assert own & subjects(offer.tool.name, offer.tool.description), request.text
            counted += len(offers) > 1
    assert counted > 100


@pytest.mark.training
def test_only_training_declares_similar_tools_together() -> None:
    def together(held_out: bool) -> bool:
        for seed in range(3000):
            rng = Random(f"together/{seed}")
            names = " ".join(one.tool.name for one in some_tools(rng, Words(rng, held_out), held_out, 6))
            if "pollen" in names.lower() and "forecast" in names.lower():
                return True
        return False

    assert together(held_out=False)
    assert not together(held_out=True)


def test_another_name_still_shows_the_tools_purpose() -> None:
    changed = 0
    for entry in tools_of_the_stock():
        things = [words_of(name)[1:] or words_of(name) for name in entry["names"]]
        for seed in range(4):
            rng = Random(f"{entry['names'][0]}/{seed}")
            name = renamed(rng, Words(rng, False), entry["names"])
            assert any(set(thing) <= set(words_of(name)) for thing in things), name
            changed += name not in entry["names"]
    assert changed > len(tools_of_the_stock())


def test_held_out_tools_keep_the_names_of_the_stock() -> None:
    names = {name for entry in tools_of_the_stock() for name in entry["names"]}
    for seed in range(200):
        rng = Random(f"names/{seed}")
        for offer in some_tools(rng, Words(rng, True), True, 6, made_up=0.0):
            assert offer.tool.name in names


@pytest.mark.parametrize("held_out", [False, True])
def test_in_training_a_name_is_sometimes_followed_by_a_random_word(held_out: bool) -> None:
    entry = next(entry for entry in tools_of_the_stock() if "get_contact" in entry["names"])
    wordings = [words_of_wording(ask) for ask in entry["asks"]]
    around = {"please", *(word for aside in stock.lines("asides.txt") for word in words_in(aside))}
    strange = 0
    for seed in range(300):
        rng = Random(f"behind/{seed}")
        request = stock_tool(rng, Words(rng, held_out), held_out, [entry]).request()
        (name,) = (value.text for field, value in request.arguments if field.kind == "person")
        assert re.search(rf"{re.escape(name)}\b", request.text)
        rest = frozenset(words_in(request.text.replace(name, "")))
        extra = min(len(rest - wording - around) for wording in wordings)
        assert extra <= 1
        strange += extra
        assert request.wording in wordings
    assert (strange == 0) if held_out else (5 < strange < 60)


def test_plain_requests_have_no_set_of_one_area() -> None:
    def of_sets(plain: bool) -> int:
        found = 0
        for seed in range(60):
            rng = Random(f"plain/{seed}")
            offers = some_tools(rng, Words(rng, False, plain), False, 4)
            found += any("set" in offer.entry for offer in offers if offer.entry)
        return found

    assert of_sets(plain=True) == 0
    assert of_sets(plain=False) > 5
