"""Long texts are encoded in pieces with the tokens of the whole, and other threads run in between."""

from __future__ import annotations

import random
import threading
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpt_oss_server.harmony.encoding import BOUNDARY, Encoding, load_encoding, pieces_of, without_long_runs

ENCODING = load_encoding()
PROSE = ("The quick brown fox doesn't jump over 12 lazy dogs.\n" * 40_000)[:2_000_000]
# What the encoder's pattern distinguishes: cases, marks, contractions, all kinds of digits, signs, line ends.
FRAGMENTS = [
    *(
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\n\n",
        "\r\n",
        "\r",
        "\u00a0",
        "\u3000",
        "\u2028",
        "\x1c",
        "\x85",
        "\u200b",
    ),
    *("'", "'s", "'S", "'re", "'ll", "don't", "I'D", "\u2019s", "'\u017f"),
    *(
        "a",
        "Z",
        "Word",
        "wORD",
        "\u00e9",
        "e\u0301",
        "\u0301",
        "\u01c5",
        "\u02b0",
        "\u0434",
        "\u05d0",
        "\u0644",
    ),
    *("\u5929", "\u6771\u4eac", "\u3002", "\uff0c", "\u3042", "\u30ab", "\ud55c", "\u4e00", "\U00020000"),
    *("0", "1", "12", "123", "1234", "\u00b2", "\u00bd", "\u2167", "\uff11", "\u0661", "\u06f1"),
    *(
        "!",
        "/",
        "//",
        "_",
        "-",
        ".",
        ",",
        '"',
        "{",
        "}",
        "<|start|>",
        "|>",
        "\\",
        "#",
        "=\n",
        "!\n/",
        "!\r\n/",
    ),
    *("\U0001f9e0", "\U0001f469\u200d\U0001f52c", "\U0001f1eb\U0001f1f7", "\ufe0f", "\u00ad", "\0", "\ufffd"),
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.text(" \n\r\t/'!a1Z\u5929\u0301", max_size=16),
)


def whole(text: str) -> list[int]:
    """The library's own tokens, from one call."""
    tokens: list[int] = ENCODING.library.encode(text, allowed_special=set(), disallowed_special=())
    return tokens


@settings(max_examples=400)
@given(TEXTS)
@example("a  \n  1 b")
@example("!\n/x \n y")
@example("don't 1 2\t\n3'S 4")
def test_splitting_at_a_boundary_keeps_the_tokens(text: str) -> None:
    tokens = whole(text)
    for found in BOUNDARY.finditer(text):
        assert whole(text[: found.end()]) + whole(text[found.end() :]) == tokens, (text, found.end())


@pytest.mark.parametrize("seed", range(40))
def test_pieces_of_a_long_text_have_the_tokens_of_the_whole(seed: int) -> None:
    chance = random.Random(seed)
    some = chance.sample(FRAGMENTS, chance.randint(3, len(FRAGMENTS)))
    text = "".join(chance.choices(some, k=12_000))
    assert "".join(pieces_of(text)) == text
    assert [token for piece in pieces_of(text) for token in whole(piece)] == whole(text)


@pytest.mark.parametrize("text", ["1" * 30_001, "ab 12 " + "3" * 30_000, "\uff11" * 20_000, "x1" * 20_000])
def test_digits_without_an_end_are_cut_as_the_encoder_groups_them(text: str) -> None:
    assert max(map(len, pieces_of(text))) <= 8_000
    assert ENCODING.encode(text) == whole(text)


@pytest.mark.parametrize("name", ["prose", "lines", "minified", "chinese", "digits"])
def test_the_pieces_of_ordinary_long_texts_are_small(name: str) -> None:
    texts = {
        "prose": PROSE,
        "lines": "{\n" * 50_000,
        "minified": '{"a1":[1,2.5,"b"],"c":{}},' * 4_000,
        "chinese": "\u5929\u5730\u7384\u9ec4\u3002\u5b87\u5b99\u6d2a\u8352\n" * 10_000,
        "digits": "7" * 100_000,
    }
    assert max(map(len, pieces_of(texts[name]))) <= 8_000


def test_runs_too_long_for_the_encoder_are_cut_at_the_same_places_in_a_long_text() -> None:
    run = "x" * 4_501
    text = "word " * 3_000 + run + " more" * 3_000
    assert "x" * 2_000 in without_long_runs(text)[1]
    assert [len(piece) for piece in without_long_runs(text)] == [17_000, 2_000, 501 + 15_000]


@pytest.mark.parametrize("spelling", ["<|start|>", "<|reserved_200014|>", "<|endoftext|>"])
def test_special_tokens_in_a_long_text_stay_whole(spelling: str) -> None:
    text = f"{spelling}12 {spelling}a " * 3_000
    expected: list[int] = ENCODING.library.encode(text, allowed_special="all")
    assert ENCODING.encode_special(text) == expected


def longest_wait_while(work: object) -> tuple[float, float]:
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
        assert callable(work)
        work()
    finally:
        took = time.perf_counter() - began
        done.set()
        watcher.join()
    return max(waits), took


def test_another_thread_runs_while_two_million_characters_are_encoded() -> None:
    share = 1.0
    for _ in range(5):
        longest, took = longest_wait_while(lambda: ENCODING.encode(PROSE))
        share = min(share, longest / took)
        if share < 0.2:
            break
    assert share < 0.2  # the share was 1 when one call encoded the whole text


def test_a_message_costs_a_fraction_of_what_the_library_takes_to_frame_it(encoding: Encoding) -> None:
    """The library frames a message once for each role, name and channel."""

    def seconds(name: str) -> float:
        began = time.process_time()
        for _ in range(300):
            encoding.render_message("user", "x", name=name)
        return time.process_time() - began

    too_long_to_keep = "n" * 65
    assert min(seconds("ann") for _ in range(5)) < min(seconds(too_long_to_keep) for _ in range(5)) / 3


def test_names_and_channels_do_not_get_each_others_frames(encoding: Encoding) -> None:
    plain = encoding.render_message("assistant", "x")
    final = encoding.render_message("assistant", "x", channel="final")
    named = encoding.render_message("assistant", "x", name="final")
    assert len({plain, final, named}) == 3
    assert [encoding.decode(tokens) for tokens in (plain, final)] == [
        "<|start|>assistant<|message|>x<|end|>",
        "<|start|>assistant<|channel|>final<|message|>x<|end|>",
    ]
