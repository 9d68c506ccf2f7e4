"""The cost of a token: low, and the same at the end of a long response as in a short one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice

import pytest

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import CHANNEL, FIRST_SPECIAL, MESSAGE, load_encoding

ENCODING = load_encoding()
HEADER = [CHANNEL, *ENCODING.encode("final"), MESSAGE]
PROSE = ENCODING.encode(
    "The quick brown fox jumps over the lazy dog in 東京, and nobody minds 🧠. It is fun!\n"
)
# Tokens of two broken bytes each: the worst case for a parser that retries what it could not decode.
BROKEN = list(islice((token for token in range(FIRST_SPECIAL) if ENCODING.decode([token]) == "��"), 50))
FULL_SHORT, FULL_LONG = 500, 50_000


def seconds_per_token(tokens: Sequence[int], count: int) -> float:
    """The fastest of several passes over the last 500 of `count` tokens, with all earlier ones decoded."""
    decoder = Decoder(ENCODING)
    for token in HEADER:
        decoder.feed(token)
    ahead = [tokens[place % len(tokens)] for place in range(count - FULL_SHORT)]
    for token in ahead:
        decoder.feed(token)
    last = [tokens[place % len(tokens)] for place in range(FULL_SHORT)]
    began = time.perf_counter()
    for token in last:
        decoder.feed(token)
    return (time.perf_counter() - began) / FULL_SHORT


@pytest.mark.parametrize("tokens", [PROSE, BROKEN, [MESSAGE]], ids=["prose", "broken bytes", "strays"])
def test_the_last_of_50_000_tokens_cost_what_the_last_of_500_do(tokens: Sequence[int]) -> None:
    ratio = 0.0
    for _ in range(5):
        short = min(seconds_per_token(tokens, FULL_SHORT) for _ in range(20))
        long = min(seconds_per_token(tokens, FULL_LONG) for _ in range(4))
        ratio = long / short
        if ratio <= 1.2:
            break
    assert ratio <= 1.2


def test_a_whole_response_of_50_000_tokens_costs_per_token_what_one_of_500_does() -> None:
    """Both have equally many tokens, so that other load on the machine affects both equally."""

    def seconds(responses: int, count: int) -> float:
        tokens = HEADER + [PROSE[place % len(PROSE)] for place in range(count)]
        began = time.perf_counter()
        for _ in range(responses):
            decoder = Decoder(ENCODING)
            for token in tokens:
                decoder.feed(token)
            decoder.close()
        return time.perf_counter() - began

    ratio = 0.0
    for _ in range(5):
        long = min(seconds(1, FULL_LONG) for _ in range(4))
        ratio = long / min(seconds(FULL_LONG // FULL_SHORT, FULL_SHORT) for _ in range(4))
        if ratio <= 1.2:
            break
    assert ratio <= 1.2


def test_a_token_of_text_costs_less_than_four_microseconds() -> None:
    """30,000 tokens a second leave 33 µs for the whole server; this is its smallest part."""
    assert min(seconds_per_token(PROSE, FULL_SHORT) for _ in range(50)) < 4e-6
