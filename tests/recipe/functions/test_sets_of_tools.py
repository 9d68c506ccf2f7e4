"""The sets of the stock: tools of one area each, as one server would declare them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from recipe.functions.tool_sets import one_more_tool, some_tools, tools_of_a_set
from recipe.functions.tool_stock import sets_of_tools, stock_tool, tools_of_the_stock
from recipe.text import stock
from recipe.text.words import Words, natural_values, typed_kinds

_FORMS = {
    "city",
    "person",
    "name",
    "word",
    "query",
    "title",
    "sentence",
    "file",
    "path",
    "email",
    "date",
    "time",
}
_FORMS |= {"int", "small", "float", "id"}
_GAP = re.compile(r"\{(\d)\}")


def entries() -> Iterator[dict[str, Any]]:
    for tools in sets_of_tools():
        yield from tools


def required(entry: dict[str, Any]) -> list[str]:
    return [str(place) for place in range(len(entry["params"])) if str(place) not in entry.get("options", {})]


def test_every_request_has_the_required_values_and_no_others() -> None:
    for entry in entries():
        for ask in entry["asks"]:
            assert sorted(_GAP.findall(ask)) == required(entry), (entry["names"], ask)
        for place, endings in entry.get("options", {}).items():
            assert all(_GAP.findall(ending) == [place] for ending in endings), entry["names"]


def test_optional_parameters_come_last_and_names_are_unique() -> None:
    names: list[str] = []
    for entry in entries():
        assert required(entry) == [str(place) for place in range(len(required(entry)))], entry["names"]
        names += entry["names"]
        alternatives = [name for key in entry["params"] for name in key.split("|")]
        assert len(alternatives) == len(set(alternatives)), entry["names"]
    assert len({one["set"] for one in entries()}) == len(sets_of_tools())
    for file in stock.SETS:
        of_file = [name for one in stock.parsed(file) for tool in one["tools"] for name in tool["names"]]
        assert len(of_file) == len(set(of_file)), file


def test_every_kind_of_value_can_be_drawn_for_training_and_held_out() -> None:
    kinds = {kind for entry in entries() for kind, _ in entry["params"].values()}
    plain = {kind for kind in kinds if not kind.startswith(("enum:", "bool:"))} - {"switch"}
    assert plain <= _FORMS | set(typed_kinds())
    for kind, form in typed_kinds().items():
        assert form in _FORMS
        for held_out in (False, True):
            values = natural_values(kind, held_out)
            assert len(values) > (0 if held_out else 12), kind
            assert all(value == value.strip() and '"' not in value for value in values)


def test_parameters_of_the_stock_have_known_kinds() -> None:
    of_the_stock = {
        (entry["names"][0], names.split("|")[0])
        for entry in tools_of_the_stock()
        for names in entry["params"]
    }
    for line in stock.lines("kinds_of_params.txt"):
        tool, parameter, kind = line.split()
        assert (tool, parameter) in of_the_stock, line
        assert kind in typed_kinds(), line


def test_a_set_is_declared_together_and_some_requests_fit_none_of_it() -> None:
    together = declined_beside_its_like = 0
    for seed in range(150):
        rng = Random(f"set/{seed}")
        words = Words(rng, False)
        offers = tools_of_a_set(rng, words, 6)
        areas = {offer.entry["set"] for offer in offers if offer.entry and "set" in offer.entry}
        assert areas
        together += len(offers) > 2
        other = one_more_tool(rng, words, False, offers)
        assert all(other.entry is None or other.entry is not offer.entry for offer in offers)
        assert not other.entry or other.entry["names"] not in [
            one.entry["names"] for one in offers if one.entry
        ]
        declined_beside_its_like += bool(other.entry and other.entry.get("set") in areas)
    assert together > 60
    assert declined_beside_its_like > 10


@pytest.mark.parametrize("held_out", [False, True])
def test_sets_are_only_for_training(held_out: bool) -> None:
    found = 0
    for seed in range(200):
        rng = Random(f"alone/{seed}")
        offers = some_tools(rng, Words(rng, held_out), held_out, 6)
        found += any(offer.entry is not None and "set" in offer.entry for offer in offers)
    assert (found == 0) if held_out else (40 < found < 120)


def test_values_have_the_kind_of_their_parameter() -> None:
    entry = next(one for one in entries() if any(kind == "cuisine" for kind, _ in one["params"].values()))
    usual, drawn = set(natural_values("cuisine", False)), 0
    for seed in range(60):
        rng = Random(f"kinds/{seed}")
        arguments = stock_tool(rng, Words(rng, False), False, [entry]).request().arguments
        drawn += sum(
            field.kind == "cuisine" and value.text.capitalize() in {v.capitalize() for v in usual}
            for field, value in arguments
        )
    assert drawn > 15


def test_more_values_have_known_kinds_and_are_only_for_training() -> None:
    first: dict[str, list[str]] = stock.parsed("values_typed.json")
    files = sorted(stock.FOLDER.glob("values_more_*.json"))
    assert files
    for file in files:
        for kind, values in stock.parsed(file.name).items():
            assert kind in typed_kinds(), kind
            assert len({*first[kind], *values}) == len(first[kind]) + len(values), kind
            assert set(natural_values(kind, True)) <= set(first[kind])
            assert set(natural_values(kind, False)) - set(first[kind])


def test_a_quoted_sentence_may_end_like_a_sentence_and_has_one_pair_of_quotes() -> None:
    asks = ["Say {0} to everybody", 'Say "{0}" to everybody']
    entry = {"names": ["say_it"], "about": ["Says it."], "params": {"text": ["phrase", ""]}, "asks": asks}
    ended = 0
    for seed in range(400):
        rng = Random(f"quotes/{seed}")
        request = stock_tool(rng, Words(rng, False), False, [{**entry, "set": "one"}]).request()
        (_, value), (begin, end) = request.arguments[0], request.spans[0]
        assert request.text[begin:end] == value.text
        assert '""' not in request.text
        ended += value.text[-1] in "!." and request.text[end] == '"'
    assert ended > 5
