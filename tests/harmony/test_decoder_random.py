"""Random and mutated completions: no exception, no lost text, sums and spans that fit. 24,000 in all."""

from __future__ import annotations

import random

import pytest

from gpt_oss_server.harmony.encoding import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    ENDOFTEXT,
    FIRST_SPECIAL,
    MESSAGE,
    RETURN,
    START,
    load_encoding,
)
from tests.doubles.harmony.decoding import check_invariants, decode
from tests.doubles.harmony.shapes import DECLARED, LEGAL
from tests.doubles.harmony.slips import SHAPES
from tests.doubles.random_tests.seeds import seeds

ENCODING = load_encoding()
FRAMING = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL, ENDOFTEXT)
SPELT = (
    "assistant¦final¦analysis¦commentary¦ to=functions.f¦ to=¦to¦=f¦json¦user¦ ¦Hello there, my friend¦"
    'python¦functions.f¦{"a": [1, 2]}¦\n\n¦<|end|>¦I\'m sorry'
)
WORDS = [ENCODING.encode(text) for text in SPELT.split("¦")]
BROKEN = [token for token in range(2_000) if "�" in ENCODING.decode([token])]
BASES = [ENCODING.encode_special(shape.completion) for shape in SHAPES]
NEXT = [START, *ENCODING.encode("assistant")]
LONG = [token for shape in LEGAL for token in ENCODING.encode_special(shape.completion) + NEXT]


def any_token(rng: random.Random) -> list[int]:
    match rng.randrange(10):
        case 0 | 1 | 2 | 3:
            return [rng.choice(FRAMING)]
        case 4 | 5 | 6:
            return rng.choice(WORDS)
        case 7:
            return [rng.choice(BROKEN)]
        case 8:
            return [rng.randrange(FIRST_SPECIAL)]
        case _:
            return [rng.randrange(-2, 201_200)]


def mutated(rng: random.Random, tokens: list[int]) -> list[int]:
    """Drops, doubles, swaps and inserts tokens, special tokens more often than others."""
    tokens = list(tokens)
    for _ in range(rng.randint(1, 5)):
        special = [place for place, token in enumerate(tokens) if token >= FIRST_SPECIAL]
        place = rng.choice(special) if special and rng.random() < 0.6 else rng.randrange(len(tokens) + 1)
        match rng.randrange(5):
            case 0:
                del tokens[place : place + 1]
            case 1:
                tokens[place:place] = tokens[place : place + rng.randint(1, 4)]
            case 2 if tokens:
                other = rng.randrange(len(tokens))
                place = min(place, len(tokens) - 1)
                tokens[place], tokens[other] = tokens[other], tokens[place]
            case 3:
                tokens[place : place + 1] = any_token(rng)
            case _:
                tokens[place:place] = any_token(rng)
    return tokens[: rng.randrange(len(tokens) + 1)] if rng.random() < 0.2 else tokens


def random_sequence(rng: random.Random) -> list[int]:
    return [token for _ in range(rng.randint(0, 25)) for token in any_token(rng)]


@pytest.mark.parametrize("seed", seeds(4, proofs=12))
def test_a_thousand_random_sequences(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1_000):
        tokens = random_sequence(rng)
        check_invariants(ENCODING, tokens, decode(ENCODING, tokens, DECLARED))


@pytest.mark.parametrize("seed", seeds(4, proofs=12))
def test_a_thousand_mutated_shapes(seed: int) -> None:
    rng = random.Random(1_000 + seed)
    for _ in range(1_000):
        tokens = mutated(rng, LONG if rng.random() < 0.05 else rng.choice(BASES))
        check_invariants(ENCODING, tokens, decode(ENCODING, tokens, DECLARED))
