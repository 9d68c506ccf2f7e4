"""The vocabulary: total in both directions, text never special, loaded once."""

from __future__ import annotations

from array import array
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpt_oss_server.harmony import encoding as module
from gpt_oss_server.harmony.encoding import (
    END,
    FIRST_SPECIAL,
    START,
    VOCABULARY_SIZE,
    Encoding,
    load_encoding,
)

ENCODING = load_encoding()


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_text_comes_back_as_it_was(text: str) -> None:
    tokens = ENCODING.encode(text)
    assert ENCODING.decode(tokens) == text
    assert all(token < FIRST_SPECIAL for token in tokens)


def test_spellings_of_special_tokens_are_text_unless_requested() -> None:
    spelt = "".join(sorted(ENCODING.library.special_tokens_set))
    assert all(token < FIRST_SPECIAL for token in ENCODING.encode(spelt))
    assert ENCODING.encode_special("<|start|><|end|>") == [START, END]


def test_lone_surrogates_survive() -> None:
    assert (
        ENCODING.decode(ENCODING.encode("a\ud800b\udfff"))
        == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    )
    assert ENCODING.decode(ENCODING.encode_special("\ud83e\udde0<|end|>")) == "🧠<|end|>"


@settings(max_examples=300)
@given(st.lists(st.one_of(st.integers(0, VOCABULARY_SIZE + 5), st.integers()), max_size=12))
def test_any_ids_decode(tokens: list[int]) -> None:
    assert isinstance(ENCODING.decode(tokens), str)


def test_ids_without_a_token_become_replacement_characters() -> None:
    assert ENCODING.decode([*ENCODING.encode("a"), -1, 10**9, *ENCODING.encode("b"), END]) == "a��b<|end|>"


@pytest.mark.parametrize("raw", [b"\xf0\x9f", b"\xed\xa0\x80", b"\xff\x00"])
def test_token_bytes_are_exact(raw: bytes) -> None:
    single = {ENCODING.token_bytes([token]): token for token in range(256)}
    assert ENCODING.token_bytes([single[bytes([byte])] for byte in raw]) == raw


def test_threads_share_one_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_loaded", [])
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(lambda _: load_encoding(), range(8)))
    assert all(one is loaded[0] for one in loaded)


def test_the_tokens_of_a_very_long_message_are_those_of_its_text(encoding: Encoding) -> None:
    """They are an array, which other threads need not wait for when it is released."""
    text = "word, " * 170_000
    rendered = encoding.render_message("user", text)
    short = encoding.render_message("user", "")
    assert isinstance(rendered, array)
    assert list(rendered) == [*short[:-1], *encoding.encode(text), short[-1]]
