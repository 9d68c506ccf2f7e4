"""Words with nearly the same meaning, and requests with them."""

from __future__ import annotations

from random import Random

from recipe.functions.made_up_tools import made_up_tool
from recipe.text.like_words import like_words
from recipe.text.meanings import meanings
from recipe.text.words import Words, is_held_out


def test_words_with_nearly_the_same_meaning_are_found() -> None:
    assert "baggage" in like_words("luggage")
    assert "motel" in like_words("hotel")
    assert like_words("nosuchwordatall") == ()


def test_they_are_not_forms_of_the_word_and_belong_to_training() -> None:
    for word in list(meanings()[0])[:300]:
        for other in like_words(word):
            assert other[:4] != word[:4]
            assert not is_held_out(other)


def test_only_training_requests_functions_with_them() -> None:
    def said_otherwise(held_out: bool) -> int:
        found = 0
        for seed in range(200):
            rng = Random(seed)
            offer = made_up_tool(rng, Words(rng, held_out), held_out)
            things = offer.tool.name.lower().split("_")[1:]
            like = {other for thing in things for other in like_words(thing)}
            found += bool(like & offer.request().wording)
        return found

    # A wording may contain a word by chance.
    assert said_otherwise(held_out=False) > 5 * max(1, said_otherwise(held_out=True))
