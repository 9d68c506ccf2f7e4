"""The check of a finished turn, for engines that do not enforce its form: it judges any text."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.constraints.grammar import JsonBody
from gpt_oss_server.constraints.matcher import grammars_of
from gpt_oss_server.constraints.turn_check import TurnCheck
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import Header


def judged(encoding: Encoding, schema: dict[str, Any], text: str) -> str | None:
    check = TurnCheck(grammars_of(encoding), JsonBody(schema), {}, False, None)
    return check.problem([(Header("final"), text)])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^a+$"},
        {"type": "string", "format": "date"},
        {"enum": ["a", "b"]},
        {"const": "a"},
        {"type": "integer"},
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "additionalProperties": False},
    ],
)
@pytest.mark.parametrize(
    "text", [r'"\ud83d"', r'{"\ud83d": "\ud83d"}', "[" * 990 + "]" * 990, "[" * 50_000, "1e999", "NaN"]
)
def test_a_misfit_is_a_sentence_that_can_be_sent(
    encoding: Encoding, schema: dict[str, Any], text: str
) -> None:
    problem = judged(encoding, schema, text)
    assert problem is not None
    assert problem.encode()


@pytest.mark.parametrize(
    ("number", "step", "fits"),
    [("0.3", 0.1, True), ("0.35", 0.1, False), ("1" + "0" * 40, 10, True), ("1" + "0" * 40 + "1", 10, False)],
)
def test_multiples_are_checked_for_numbers_of_any_length(
    encoding: Encoding, number: str, step: float, fits: bool
) -> None:
    assert (judged(encoding, {"type": "number", "multipleOf": step}, number) is None) == fits


@pytest.mark.parametrize(
    ("headers", "is_missing"),
    [
        ([], True),
        ([Header("analysis")], True),
        ([Header("analysis"), Header("commentary")], True),
        ([Header("commentary", "functions.f")], False),
        ([Header("analysis"), Header("final")], False),
    ],
)
def test_a_missing_answer_does_not_fit(encoding: Encoding, headers: list[Header], is_missing: bool) -> None:
    check = TurnCheck(grammars_of(encoding), JsonBody({"type": "object"}), {}, False, None)
    problem = check.problem([(header, "{}") for header in headers])
    assert (problem is not None) == is_missing
    assert problem is None or "gave no answer" in problem
    unbound = TurnCheck(grammars_of(encoding), None, {}, False, None)
    assert unbound.problem([(header, "{}") for header in headers]) is None
