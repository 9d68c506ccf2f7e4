"""Regular expressions as trees match what Python's do; what a tree cannot express is left to the check."""

import re

import pytest

from gpt_oss_server.constraints.spelling.nodes import Tree
from gpt_oss_server.constraints.spelling.regex import node_of_pattern
from gpt_oss_server.constraints.spelling.rest import Rest

WORDS = "a ab abab 7 42 1234 2024-01-31 x_y é [ a-b A zzz"
PATTERNS = r"[0-9]{1,3} a|b|ab (ab)+ (?:ab)* \d{4}-\d{2}-\d{2} \w+ [^a-z\n]+ \s? a.? [a\-b]+ z{2,} [\d]+?"
INEXPRESSIBLE = r"(?=a) (a)\1 \p{L} (a*)* a{999} (a [a a) <| a^ [[:alpha:]] [\w&&[^b]] [a-z--x]"


def matches(pattern: str, text: str) -> bool:
    node = node_of_pattern(pattern)
    assert node is not None
    rest = Rest(Tree(node, {}), lambda code: chr(code).encode())
    rest.take(map(ord, text))
    return None in rest._reached(rest.positions)


@pytest.mark.parametrize("pattern", [*PATTERNS.split(), r"\x41", r"\[", ""])
def test_a_pattern_matches_the_same_texts(pattern: str) -> None:
    for text in (*WORDS.split(), "", " ", "\n"):
        assert matches(pattern, text) == bool(re.fullmatch(pattern, text)), (pattern, text)


@pytest.mark.parametrize("pattern", INEXPRESSIBLE.split())
def test_what_a_tree_cannot_express_is_none(pattern: str) -> None:
    assert node_of_pattern(pattern) is None


def test_a_wide_class_spells_no_special_token() -> None:
    assert matches(".", "|")
    assert not matches(".", "<")
    assert matches("<", "<")
