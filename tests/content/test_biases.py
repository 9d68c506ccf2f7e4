"""Biases of tokens in their two shapes, and bad words."""

from typing import Any

import pytest

from gpt_oss_server.content.biases import NEVER, logit_bias, words_of_one_token
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import VOCABULARY_SIZE, Encoding


def test_an_object_and_pairs_of_ids(encoding: Encoding) -> None:
    for given in ({"5": 2, "7": -100}, [[5, 2], [7, False]]):
        assert logit_bias(given, encoding, VOCABULARY_SIZE) == {5: 2.0, 7: NEVER}  # type: ignore[arg-type]


def test_a_text_biases_all_its_tokens(encoding: Encoding) -> None:
    ids = encoding.encode("Hello, World!")
    assert len(ids) > 2
    wanted = dict.fromkeys(ids, -0.5)
    assert logit_bias([["Hello, World!", -0.5]], encoding, VOCABULARY_SIZE) == wanted
    assert logit_bias({"Hello, World!": -0.5}, encoding, VOCABULARY_SIZE) == wanted
    [twelve] = encoding.encode("12")
    assert logit_bias([["12", 1]], encoding, VOCABULARY_SIZE) == {twelve: 1.0}
    assert logit_bias({"12": 1}, encoding, VOCABULARY_SIZE) == {12: 1.0}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"201088": 1}, "logit_bias.201088"),
        ({"5": "much"}, "logit_bias.5"),
        ({"5": 101}, "logit_bias.5"),
        ({"5": True}, "logit_bias.5"),
        ({"": 1}, "logit_bias."),
        ([[5]], "logit_bias[0]"),
        ([[5, 1], 3], "logit_bias[1]"),
        ([[True, 1]], "logit_bias[0]"),
        ([["x" * 101, 1]], "logit_bias[0]"),
    ],
)
def test_an_error_names_the_entry(encoding: Encoding, given: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        logit_bias(given, encoding, VOCABULARY_SIZE)
    assert refused.value.param == param


def test_words_of_one_token_with_and_without_a_space(encoding: Encoding) -> None:
    ids, others = words_of_one_token(["Paris", "zqxjkvb"], encoding)
    assert ids >= {*encoding.encode("Paris"), *encoding.encode(" Paris")}
    assert others == ["zqxjkvb"]
