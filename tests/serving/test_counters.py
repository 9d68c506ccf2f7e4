"""Counters: how responses ended, and how many clients disconnected."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, aclosing
from typing import Any

from gpt_oss_server.errors import GenerationFailed
from gpt_oss_server.runs.observed import Counters, ObservedRun, outcome
from inference.engine import Finish


def observed(counters: Counters) -> AbstractContextManager[Any]:
    return ObservedRun("responses", "resp_1", "tiny", counters, (), outlives=False).running()


async def numbers(counters: Counters) -> AsyncGenerator[int, None]:
    with observed(counters):
        for number in range(3):
            yield number


async def test_a_reader_that_stops_early_is_counted_once() -> None:
    counters = Counters()
    assert [number async for number in numbers(counters)] == [0, 1, 2]
    assert counters.cancelled == 0
    async with aclosing(numbers(counters)) as read:
        await anext(read)
    assert counters.cancelled == 1


async def test_a_cancelled_task_is_counted_once() -> None:
    counters = Counters()

    async def wait() -> None:
        with observed(counters):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert counters.cancelled == 1


def test_an_error_takes_precedence_over_the_engine_s_finish() -> None:
    for finish in (Finish.STOP, None):
        assert outcome(finish, None) == "completed"
    assert outcome(Finish.LENGTH, None) == "incomplete"
    assert outcome(Finish.LENGTH, GenerationFailed("broke")) == "failed"
