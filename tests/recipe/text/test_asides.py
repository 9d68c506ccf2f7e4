"""Words around a request that are no part of a value: only in training, and never marked as one."""

from __future__ import annotations

from random import Random

import pytest

from recipe.functions.restating import restated
from recipe.functions.tool_sets import some_tools
from recipe.text.asides import with_an_aside
from recipe.text.vocabulary import encoding
from recipe.text.words import Words


def wordings(kinds: list[str], ask: str) -> set[str]:
    rng = Random(1)
    return {with_an_aside(rng, kinds, ask) for _ in range(3000)}


def test_some_requests_have_an_aside() -> None:
    found = wordings(["city"], "Is it raining in {0}?")
    assert "Hey, is it raining in {0}?" in found
    assert "Is it raining in {0} for me?" in found
    assert "Is it raining in {0}?" in found
    assert all(text.count("{0}") == 1 and text.endswith("?") for text in found)


def test_no_aside_follows_a_value_that_may_end_in_any_words() -> None:
    assert not any(text.endswith("me") for text in wordings(["sentence"], "Remind me to {0}"))


@pytest.mark.parametrize("ask", ["I need {0}", "{0} please"])
def test_a_name_and_the_speaker_keep_their_case(ask: str) -> None:
    assert all("i need" not in text and "{0}" in text for text in wordings(["name"], ask))


@pytest.mark.training
def test_no_aside_is_marked_as_a_value() -> None:
    marked = []
    for place in range(1200):
        rng = Random(place)
        words = Words(rng, False)
        requests = [offer.request() for offer in some_tools(rng, words, False, 3)]
        marked += [encoding().decode(restated(one)) for one in requests if "Quick one: " in one.text]
    assert marked
    assert all(text.startswith(":\nQuick one: ") for text in marked)
