"""Follow-up requests with only another value: they mean the function of the last call."""

from __future__ import annotations

import re
from random import Random

import pytest

from recipe.functions.tool_stock import Request, stock_tool
from recipe.skills.calls import busy_talk, call_talk
from recipe.skills.follow_ups import again
from recipe.text.talk import GOES_ON, MESSAGE, Talk, tokens_of
from recipe.text.vocabulary import encoding
from recipe.text.words import Words
from recipe.training.batches import learned_tokens
from recipe.training.marks import marks_of

SEEDS = range(300)


def follow_ups(held_out: bool) -> list[tuple[Request, Request]]:
    """Requests, each with its follow-up."""
    found = []
    for seed in SEEDS:
        rng = Random(f"again/{seed}")
        words = Words(rng, held_out)
        request = stock_tool(rng, words, held_out).request()
        if other := again(rng, words, request):
            found.append((request, other))
    return found


@pytest.mark.parametrize("held_out", [False, True])
def test_the_value_is_another_one_at_the_place_of_its_span(held_out: bool) -> None:
    found = follow_ups(held_out)
    assert len(found) > 60
    changed = 0
    for request, other in found:
        ((field, value),) = other.arguments
        ((begin, end),) = other.spans
        assert other.tool is request.tool
        assert field is request.arguments[0][0]
        assert other.text[begin:end] == value.text
        assert value.bare == (other.text[begin - 1 : begin] == " ")
        changed += value.text != request.arguments[0][1].text
    assert changed > 0.9 * len(found)


def test_only_a_function_with_one_free_argument_has_follow_ups() -> None:
    for request, _ in follow_ups(held_out=False):
        ((field, _),) = request.arguments
        assert not field.options
        assert field.json_type != "boolean"


def requests_of(talk: Talk) -> list[str]:
    text = encoding().decode(talk.tokens)
    return [part.partition("<|end|>")[0] for part in text.split("<|start|>user<|message|>")[1:]]


def test_training_has_follow_ups_after_a_call_of_the_same_function() -> None:
    """The request names no function, so it must mean the last called one."""
    followed = 0
    for seed in range(150):
        rng = Random(f"talks/{seed}")
        make = busy_talk if seed % 2 else call_talk
        talk = make(rng, Words(rng, False), False)
        followed += any(
            text.lower().startswith(("and ", "the same", "now ")) for text in requests_of(talk)[1:]
        )
    assert followed > 10


@pytest.mark.training
def test_the_thought_begins_with_the_last_called_function() -> None:
    """In the tokens of that call, with or without the dot; then it names and calls it as usual."""
    decode, dotted = encoding().decode, []
    taken_up = re.compile(r".*?<\|message\|>The user needs functions\.(\w+), so \1 fits")
    for seed in range(240):
        rng = Random(f"looks/{seed}")
        talk = (busy_talk if seed % 2 else call_talk)(rng, Words(rng, False), False)
        looked = {place: at for _, place, at in marks_of([talk], learned_tokens(1)).looked.tolist()}
        for turn in talk.turns:
            text = decode(talk.tokens[turn.start : turn.end])
            if not (found := taken_up.match(text)):
                assert GOES_ON not in text
                continue
            last = re.findall(r"functions\.(\w+) <\|constrain\|>", decode(talk.tokens[: turn.start]))[-1]
            assert found[1] == last
            assert f"to=functions.{last} <|constrain|>" in text
            place = talk.tokens.index(MESSAGE, turn.start) + len(tokens_of(GOES_ON))
            for at_thought in (place, place + 1):
                at = looked[at_thought]
                assert talk.tokens[at] == talk.tokens[at_thought + 1]
                assert decode(talk.tokens[: at + 4]).rpartition("functions.")[2].startswith(last[:1])
            dotted.append(decode(talk.tokens[place + 1 : place + 2]) != ".")
    assert len(dotted) > 20
    assert 0 < sum(dotted) < len(dotted)
