"""Repetition in a turn: which cycles of tokens are found, how soon, and what is not taken for one."""

import random

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import ClosedBy, Header, MessageFinished, MessageStarted
from gpt_oss_server.turns.repetition import Asides, Cycles, Rounds

LIMIT = 256
TEXT = """The harbour lies in a bay, and the bay is deep. Ships come in the morning with the tide, and leave
in the evening. | one | two | three |\n|---|---|---|\n| 1 | 2 | 3 |\n| 4 | 5 | 6 |\n The harbour lies deep."""


def tokens_until_found(cycle: list[int], *, per_step: int, before: int = 100) -> int | None:
    """How many tokens of the repeated cycle are read until it is found."""
    rng = random.Random(1)
    cycles, read = Cycles(LIMIT), 0
    assert cycles.feed([rng.randrange(200_000) for _ in range(before)]) is None
    while read < 3 * LIMIT:
        step = [cycle[(read + at) % len(cycle)] for at in range(per_step)]
        read += per_step
        if cycles.feed(step) is not None:
            return read
    return None


@pytest.mark.parametrize("length", [1, 2, 3, 5, 16, 64, 100, 159, 160])
@pytest.mark.parametrize("per_step", [1, 3, 16])
def test_a_cycle_is_found_within_twice_the_limit(length: int, per_step: int) -> None:
    rng = random.Random(length)
    found = tokens_until_found([rng.randrange(200_000) for _ in range(length)], per_step=per_step)
    assert max(LIMIT, 3 * length) <= found < 2 * LIMIT


def test_a_cycle_of_few_different_tokens_is_found() -> None:
    rng = random.Random(3)
    for length in range(4, 60):
        assert tokens_until_found([rng.choice((7, 8)) for _ in range(length)], per_step=1) is not None


def test_longer_cycles_and_changing_ones_are_none() -> None:
    rng = random.Random(2)
    assert tokens_until_found([rng.randrange(200_000) for _ in range(200)], per_step=1) is None
    cycles = Cycles(LIMIT)
    for number in range(400):  # a numbered list
        assert cycles.feed([11, 12, number, 13]) is None


def test_ordinary_text_is_no_cycle_even_if_it_says_things_twice(encoding: Encoding) -> None:
    cycles = Cycles(LIMIT)
    for _ in range(2):
        for token in encoding.encode(TEXT):
            assert cycles.feed([token]) is None


def repeated(asides: Asides, channel: str, *texts: str) -> list[object]:
    """What is found at the start and at the end of each message."""
    header = Header(channel)  # type: ignore[arg-type]
    return [
        found
        for text in texts
        for event in (MessageStarted(header), MessageFinished(header, text, ClosedBy.END, 0, 1))
        if (found := asides.repeats(event)) is not None
    ]


def test_a_third_copy_of_a_message_ends_the_generation_unless_an_answer_or_a_call_follows() -> None:
    for after in (Header("final"), Header("commentary", "functions.f")):
        asides = Asides()
        assert not repeated(asides, "commentary", *["I will look."] * 3)
        assert asides.repeats(MessageStarted(after)) is None
        assert asides.repeats(MessageStarted(Header("commentary"))) is None
    asides = Asides()
    assert not repeated(asides, "analysis", *["Hm."] * 3)
    warning = asides.repeats(MessageStarted(Header("commentary")))
    assert "3 times in a row" in warning.detail


def test_rounds_that_change_nothing_are_found() -> None:
    poll, done = (("python", "status()", "running"),), (("python", "status()", "done"),)
    rounds = Rounds()
    for _ in range(7):
        assert rounds.add(poll) is None
    assert rounds.add(done) is None, "the result has changed"
    for _ in range(7):
        assert rounds.add(poll) is None
    warning = rounds.add(poll)
    assert "the same call of python 8 times" in warning.detail
