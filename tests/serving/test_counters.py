"""Counters: how responses ended, and how many clients disconnected."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from gpt_oss_server.errors import GenerationFailed
from gpt_oss_server.runs.observed import Counters, ObservedRun, outcome
from inference.engine import Finish


async def numbers(counters: Counters) -> AsyncGenerator[int, None]:
    with ObservedRun("responses", "resp_1", "tiny", "tiny", counters, (), outlives=False).running():
        for number in range(3):
            yield number


async def test_a_reader_that_stops_early_is_counted_once() -> None:
    counters = Counters()
    assert [number async for number in numbers(counters)] == [0, 1, 2]
    assert counters.cancelled == 0
    async with aclosing(numbers(counters)) as read:
        await anext(read)
    assert counters.cancelled == 1


def test_an_error_takes_precedence_over_the_engine_s_finish() -> None:
    for finish in (Finish.STOP, None):
        assert outcome(finish, None) == "completed"
    assert outcome(Finish.LENGTH, None) == "incomplete"
    assert outcome(Finish.LENGTH, GenerationFailed("broke")) == "failed"
