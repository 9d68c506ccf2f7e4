"""The recipe and the server: the server's grammar allows every turn that the model is taught."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from inference.engine import EngineFailed
from inference.grammar import Grammar
from recipe.evaluation.served import grammar_of
from recipe.skills.data import SKILLS
from recipe.text.talk import CALL, PAST
from recipe.text.words import Words


def follow(grammar: Grammar, tokens: Sequence[int]) -> bool:
    """Whether the tokens are a complete turn; raises for an illegal one."""
    state = grammar.start()
    for token in tokens:
        state.accept(token)
    return state.is_accepting()


@pytest.mark.parametrize("skill", SKILLS)
def test_every_generation_of_the_stock_is_in_the_servers_grammar(skill: str) -> None:
    for seed in range(4):
        rng = Random(f"served/{skill}/{seed}")
        talk = SKILLS[skill](rng, Words(rng, True), True)
        grammar = grammar_of(talk)
        for turn in (turn for turn in talk.turns if turn.kind != PAST):
            assert follow(grammar, talk.tokens[turn.start : turn.end])


def test_a_call_of_an_undeclared_function_is_not() -> None:
    rng = Random("served/undeclared")
    talk = SKILLS["call"](rng, Words(rng, True), True)
    turn = next(turn for turn in talk.turns if turn.kind in ("call", "preamble"))
    expected = talk.tokens[turn.start : turn.end]
    assert expected[-1] == CALL
    talk.tools = []
    with pytest.raises(EngineFailed, match="does not allow the token"):
        follow(grammar_of(talk), expected)
