"""The vocabulary: total in both directions, text never special, loaded once.

Long texts are encoded in pieces, with the tokens of the whole, and other threads run between them.
"""

import random
import threading
import time
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt_oss_server.harmony import encoding as module
from gpt_oss_server.harmony.encoding import (
    BOUNDARY,
    END,
    FIRST_SPECIAL,
    START,
    VOCABULARY_SIZE,
    Encoding,
    load_encoding,
    pieces,
)
from gpt_oss_server.harmony.render import Renderer
from tests.doubles.random_tests.seeds import seeds

ENCODING = load_encoding()
PROSE = ("The quick brown fox doesn't jump over 12 lazy dogs.\n" * 40_000)[:2_000_000]
# What the encoder's pattern distinguishes: cases, marks, contractions, all kinds of digits, signs, line ends.
# fmt: off
FRAGMENTS = [
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u3000", "\u2028", "\x1c", "\x85",
    "\u200b", "'", "'s", "'S", "'re", "'ll", "don't", "I'D", "\u2019s", "'\u017f",
    "a", "Z", "Word", "wORD", "\u00e9", "e\u0301", "\u0301", "\u01c5", "\u02b0", "\u0434", "\u05d0", "\u0644",
    "\u5929", "\u6771\u4eac", "\u3002", "\uff0c", "\u3042", "\u30ab", "\ud55c", "\u4e00", "\U00020000",
    "0", "1", "12", "123", "1234", "\u00b2", "\u00bd", "\u2167", "\uff11", "\u0661", "\u06f1",
    "!", "/", "//", "_", "-", ".", ",", '"', "{", "}", "<|start|>", "|>", "\\", "#", "=\n", "!\n/", "!\r\n/",
    "\U0001f9e0", "\U0001f469\u200d\U0001f52c", "\U0001f1eb\U0001f1f7", "\ufe0f", "\u00ad", "\0", "\ufffd",
]
# fmt: on
TEXTS = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(" \n\r\t/'!a1Z\u5929\u0301", max_size=16),
)


def whole(text: str) -> list[int]:
    """The library's own tokens, from one call."""
    tokens: list[int] = ENCODING.library.encode(text, allowed_special=set(), disallowed_special=())
    return tokens


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
    assert ENCODING.decode(ENCODING.encode("a\ud800b\udfff")) == "a�b�"
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
    rendered, empty = (Renderer(encoding).user(one).tokens for one in (text, ""))
    assert isinstance(rendered, array)
    assert list(rendered) == [*empty[:-1], *encoding.encode(text), empty[-1]]


@settings(max_examples=400)
@given(TEXTS)
@example("a  \n  1 b")
@example("!\n/x \n y")
@example("don't 1 2\t\n3'S 4")
def test_splitting_at_a_boundary_keeps_the_tokens(text: str) -> None:
    tokens = whole(text)
    for at in (boundary.end() for boundary in BOUNDARY.finditer(text)):
        assert whole(text[:at]) + whole(text[at:]) == tokens, (text, at)


@pytest.mark.parametrize("seed", seeds(15, proofs=40))
def test_pieces_of_a_long_text_have_the_tokens_of_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    some = chance.sample(FRAGMENTS, chance.randint(3, len(FRAGMENTS)))
    text = "".join(chance.choices([*some, " 1"], k=12_000))  # a run without an end would be cut
    assert "".join(pieces(text)) == text
    assert [token for piece in pieces(text) for token in whole(piece)] == whole(text)


ORDINARY = {
    "prose": PROSE,
    "lines": "{\n" * 50_000,
    "minified": '{"a1":[1,2.5,"b"],"c":{}},' * 4_000,
    "chinese": "\u5929\u5730\u7384\u9ec4\u3002\u5b87\u5b99\u6d2a\u8352\n" * 10_000,
    "digits": "1" * 30_001,
    "digits after text": "ab 12 " + "3" * 30_000,
    "wide digits": "\uff11" * 20_000,
    "letters and digits": "x1" * 20_000,
}


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY)
def test_the_pieces_of_ordinary_long_texts_are_small_and_have_the_tokens_of_the_whole(text: str) -> None:
    assert max(map(len, pieces(text))) <= 8_000
    assert ENCODING.encode(text) == whole(text)


@pytest.mark.parametrize("text", ["", "Hello, world!", "a" * 1_999, "12345678" * 999, "ab1" * 2_000])
def test_a_short_ordinary_text_is_one_piece(text: str) -> None:
    assert list(pieces(text)) == [text] * bool(text)


@pytest.mark.parametrize("spelling", ["<|start|>", "<|reserved_200014|>", "<|endoftext|>"])
def test_special_tokens_in_a_long_text_stay_whole(spelling: str) -> None:
    text = f"{spelling}12 {spelling}a " * 3_000
    expected: list[int] = ENCODING.library.encode(text, allowed_special="all")
    assert ENCODING.encode_special(text) == expected


def longest_wait_while(work: Callable[[], object]) -> tuple[float, float]:
    """The longest wait of another thread, and the duration of the work."""
    done = threading.Event()
    waits: list[float] = []

    def watch() -> None:
        while not done.is_set():
            began = time.perf_counter()
            time.sleep(0.001)
            waits.append(time.perf_counter() - began)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    try:
        work()
    finally:
        took = time.perf_counter() - began
        done.set()
        watcher.join()
    return max(waits), took


def test_another_thread_runs_while_two_million_characters_are_encoded() -> None:
    waits = (longest_wait_while(lambda: ENCODING.encode(PROSE)) for _ in range(5))
    # The share was 1 when one call encoded the whole text.
    assert any(longest / took < 0.2 for longest, took in waits)


HOSTILE = {
    "letters": "a" * 400_000,
    "spaces": " " * 400_000,
    "signs": "!" * 100_000,
    "chinese": "天" * 60_000,
    "marks": "e\u0301" * 60_000,
    "between words": "Hello " + "x" * 100_000 + " world",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_run_without_a_boundary_is_encoded_in_reasonable_time(text: str) -> None:
    began = time.process_time()
    assert ENCODING.decode(ENCODING.encode(text)) == text
    assert ENCODING.decode(ENCODING.encode_special(text)) == text
    assert time.process_time() - began < 30  # it took minutes, or never ended


def test_too_long_runs_are_cut_at_the_same_places_in_any_text() -> None:
    assert [piece.count("x") for piece in pieces("x" * 4_501 + " " * 2_000 + "y")] == [2_000, 2_000, 501, 0]
    text = "word " * 3_000 + "x" * 4_501 + " more" * 3_000
    assert "".join(pieces(text)) == text
    assert [piece.count("x") for piece in pieces(text) if "x" in piece] == [2_000, 2_000, 501]
