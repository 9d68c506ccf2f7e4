"""How requests for made-up functions connect values with parameters."""

from __future__ import annotations

import re
from random import Random

import pytest

from recipe.functions.made_up_tools import made_up_tool
from recipe.functions.tool_stock import KEPT_BACK
from recipe.text import stock
from recipe.text.words import Words

_REQUESTS = 400


def _between(held_out: bool, plain: bool = False) -> set[str]:
    """The single words between a value and its parameter's name after it."""
    found = set()
    for place in range(_REQUESTS):
        rng = Random(f"between/{place}")
        request = made_up_tool(rng, Words(rng, held_out, plain), held_out).request()
        for (field, _), (_, end) in zip(request.arguments, request.spans, strict=True):
            match = re.match(rf"[\"']? ([\w-]+) {re.escape(field.name)}\b", request.text[end:])
            if match:
                found.add(match.group(1))
    return found


@pytest.mark.training
def test_training_has_words_there_beyond_the_stocks_forms() -> None:
    forms = set(" ".join(stock.lines("forms.txt")).split())
    assert len(_between(False) - forms) > 30


@pytest.mark.training
def test_the_held_out_part_has_only_its_own_forms_and_training_none_of_them() -> None:
    kept_back = set(" ".join(stock.lines("forms.txt")[-KEPT_BACK:]).split())
    assert _between(True) == {"for"}
    assert "for" in kept_back
    assert not _between(False) & kept_back


@pytest.mark.training
def test_plain_requests_have_the_stocks_forms_and_none_that_is_kept_back() -> None:
    forms, kept_back = stock.lines("forms.txt")[:-KEPT_BACK], stock.lines("forms.txt")[-KEPT_BACK:]
    between = _between(False, plain=True)
    assert len(between) > 5
    assert between <= set(" ".join(forms).split())
    assert not between & set(" ".join(kept_back).split())
