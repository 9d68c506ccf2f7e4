"""Merging streams: in order of arrival, a limited number at a time, and ended together."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from gpt_oss_server.turns.merged import merged


class Sources:
    """Streams of two items each, which count how many of them are running."""

    def __init__(self, count: int, fails: int | None = None) -> None:
        self.running = self.most = self.closed = 0
        self.all = [self._source(number, fails=number == fails) for number in range(count)]

    async def _source(self, number: int, *, fails: bool) -> AsyncGenerator[int, None]:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            for _ in range(2):
                await asyncio.sleep(0)
                if fails:
                    raise ValueError(number)
                yield number
        finally:
            self.running -= 1
            self.closed += 1


@pytest.mark.parametrize(("count", "limit", "most"), [(50, 4, 4), (3, 4, 3), (50, None, 50), (1, 4, 1)])
async def test_all_items_arrive_and_few_streams_run(count: int, limit: int | None, most: int) -> None:
    sources = Sources(count)
    items = [item async for item in merged(sources.all, limit)]
    assert sorted(items) == sorted([*range(count), *range(count)])
    assert (sources.most, sources.running, sources.closed) == (most, 0, count)


async def test_the_first_failure_ends_all_streams() -> None:
    sources = Sources(50, fails=3)
    with pytest.raises(ValueError, match="3"):
        async for _ in merged(sources.all, 4):
            pass
    assert sources.running == 0


async def test_a_reader_that_stops_ends_all_streams() -> None:
    sources = Sources(50)
    async with aclosing(merged(sources.all, 4)) as items:
        async for _ in items:
            break
    assert sources.running == 0
    assert sources.most == 4
