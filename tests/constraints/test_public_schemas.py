"""346 schemas from public test suites: all that are enforceable.

Whatever is sampled, an answer that stops is valid, nearly all stop, and a cut answer can still become valid.

Their names and licences are in `public_schemas.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.constraints.grammar import JsonBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.json_check import JsonCheck
from gpt_oss_server.constraints.json_grammar import enforceable
from gpt_oss_server.constraints.matcher import CompiledGrammar, Grammars, grammars_of
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.harmony.judging import body, judge
from tests.doubles.harmony.sampling import RandomModel, closing_tokens

PUBLIC: dict[str, Any] = json.loads(Path(__file__).with_name("public_schemas.json").read_text())["schemas"]
SHARES = 8  # tests that can run in parallel


@pytest.fixture(scope="module")
def grammars(encoding: Encoding) -> Grammars:
    return grammars_of(encoding)


def of_answer(grammars: Grammars, schema: Any) -> tuple[CompiledGrammar, JsonCheck]:
    """The constraint of an answer without reasoning, and its check."""
    bound = enforceable(grammars, schema)
    shape = TurnShape(answer=JsonBody(bound), asides=())
    return grammars.compile(turn_grammar(shape)), JsonCheck(bound, grammars)


def completed(encoding: Encoding, grammar: CompiledGrammar, tokens: Sequence[int], schema: Any) -> list[int]:
    """The same tokens, continued by a model that closes what can be closed and knows the schema's words."""
    words = [*re.findall(r"[a-z]+", json.dumps(schema)), *"@.-:/0a"]
    hints = sorted({token for word in words for token in encoding.encode(word)})
    for likely in ((), hints):
        model = RandomModel(0, (*closing_tokens(encoding), *likely), share=1)
        tokens_of_answer, ended = model.answer(grammar, len(tokens) + 1_000, begun=tokens)
        if ended:
            return tokens_of_answer
    raise AssertionError("no end is in sight")


def check(schema: Any, fits: JsonCheck, text: str) -> None:
    value = json.loads(text)
    assert not list(judge(schema).iter_errors(value)), value
    assert fits.problem(value) is None


def test_there_are_enough_of_them_and_each_has_a_meaning() -> None:
    assert len(PUBLIC) >= 300
    assert len({json.dumps(schema, sort_keys=True) for schema in PUBLIC.values()}) == len(PUBLIC)


@pytest.mark.parametrize("share", range(SHARES))
def test_of_public_schemas_every_answer_that_stops_is_valid(
    encoding: Encoding, grammars: Grammars, share: int
) -> None:
    model = RandomModel(share, closing_tokens(encoding))
    names = list(PUBLIC)[share::SHARES]
    stopped = 0
    for name in names:
        grammar, fits = of_answer(grammars, PUBLIC[name])
        tokens, ended = model.answer(grammar)
        stopped += ended
        if not ended:
            tokens = completed(encoding, grammar, tokens, PUBLIC[name])
        check(PUBLIC[name], fits, body(encoding, tokens))
    assert stopped >= 0.9 * len(names)


@pytest.mark.parametrize("most", [4, 7, 12])
def test_an_answer_cut_anywhere_can_still_become_valid(
    encoding: Encoding, grammars: Grammars, most: int
) -> None:
    model = RandomModel(most, closing_tokens(encoding))
    for name in list(PUBLIC)[most::12]:
        grammar, fits = of_answer(grammars, PUBLIC[name])
        tokens, ended = model.answer(grammar, most)
        whole = tokens if ended else completed(encoding, grammar, tokens, PUBLIC[name])
        check(PUBLIC[name], fits, body(encoding, whole))
