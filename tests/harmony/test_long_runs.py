"""Text that would take the library's encoder minutes, or crash it, is encoded nevertheless."""

from __future__ import annotations

import time

import pytest

from gpt_oss_server.harmony.encoding import Encoding, without_long_runs
from gpt_oss_server.harmony.render import Renderer

HOSTILE = {
    "letters": "a" * 400_000,
    "spaces": " " * 400_000,
    "signs": "!" * 100_000,
    "chinese": "天" * 60_000,
    "marks": "e\u0301" * 60_000,
    "between words": "Hello " + "x" * 100_000 + " world",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_run_without_a_boundary_is_encoded_in_reasonable_time(encoding: Encoding, name: str) -> None:
    text = HOSTILE[name]
    began = time.process_time()
    assert encoding.decode(encoding.encode(text)) == text
    assert time.process_time() - began < 30  # it took minutes, or never ended
    assert encoding.decode(Renderer(encoding).user(text).tokens).count(text) == 1


def test_ordinary_text_is_encoded_in_one_piece() -> None:
    for text in ("", "Hello, world!", "word " * 10_000, "a" * 1_999, "12345678" * 2_000, "ab1" * 5_000):
        assert without_long_runs(text) == [text]


def test_the_pieces_are_the_text() -> None:
    text = "x" * 4_501 + " " * 2_000 + "y"
    pieces = without_long_runs(text)
    assert "".join(pieces) == text
    assert [piece.count("x") for piece in pieces] == [2_000, 2_000, 501, 0]
