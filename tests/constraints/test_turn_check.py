"""The check of a finished turn, for engines that do not enforce its form: it judges any text."""

from typing import Any

import pytest

from gpt_oss_server.constraints.grammar import JsonBody
from gpt_oss_server.constraints.matcher import grammars_of
from gpt_oss_server.constraints.turn_check import TurnCheck
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import Header
from tests.doubles.harmony.schemas import INTEGER, mapping
from tests.doubles.stored import known


def judged(encoding: Encoding, schema: dict[str, Any], text: str) -> str | None:
    check = TurnCheck(grammars_of(encoding), JsonBody(schema), {}, False, None)
    return check.problem([(Header("final"), text)])


SCHEMAS = {
    "pattern": {"type": "string", "pattern": "^a+$"},
    "format": {"type": "string", "format": "date"},
    "enum": {"enum": ["a", "b"]},
    "const": {"const": "a"},
    "type": INTEGER,
    "names": mapping(False, patternProperties={"^a": INTEGER}),
}
ODD = [r'"\ud83d"', r'{"\ud83d": "\ud83d"}', "[" * 990 + "]" * 990, "[" * 50_000, "1e999", "NaN"]


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("text", ODD, ids=lambda text: text[:20])
def test_a_misfit_is_a_sentence_that_can_be_sent(encoding: Encoding, name: str, text: str) -> None:
    assert known(judged(encoding, SCHEMAS[name], text)).encode()


@pytest.mark.parametrize(
    ("number", "step", "fits"),
    [("0.3", 0.1, True), ("0.35", 0.1, False), ("1" + "0" * 40, 10, True), ("1" + "0" * 40 + "1", 10, False)],
)
def test_multiples_are_checked_for_numbers_of_any_length(
    encoding: Encoding, number: str, step: float, fits: bool
) -> None:
    assert (judged(encoding, {"type": "number", "multipleOf": step}, number) is None) == fits


def test_a_missing_answer_does_not_fit(encoding: Encoding) -> None:
    check = TurnCheck(grammars_of(encoding), JsonBody({"type": "object"}), {}, False, None)
    unbound = TurnCheck(grammars_of(encoding), None, {}, False, None)
    asides = [(Header("analysis"), "{}"), (Header("commentary"), "{}")]
    for turn in ([], asides[:1], asides):
        assert "gave no answer" in (check.problem(turn) or "")
        assert unbound.problem(turn) is None
    for end in (Header("commentary", "functions.f"), Header("final")):
        turn = [*asides[:1], (end, "{}")]
        assert check.problem(turn) is unbound.problem(turn) is None
