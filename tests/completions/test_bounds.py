"""What one request for completions may cost: the number of its choices, and when they are made."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from gpt_oss_server.apis.completions.api import start
from gpt_oss_server.apis.completions.run import CompletionRun, _Choice
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from inference.backends.scripted import ScriptedEngine
from inference.engine import Sampling, Step
from tests.doubles.apis.chat_asking import replaying
from tests.doubles.serving import leave_in_the_middle, scripted, serving

HELLO = "Hello!<|return|>"


async def run_of(engine: Any, settings: Settings | None = None, **body: Any) -> CompletionRun:
    return await start(LOCAL, {"max_tokens": 4, **body}, Served(engine, settings))


async def test_too_many_choices_are_refused_and_the_bound_is_a_setting() -> None:
    for prompt, n in ((["a"] * 20_000, 128), (["a"] * 17, 128), ([[1]] * 2_049, 1)):
        with pytest.raises(InvalidRequest, match="Send them in several requests") as refused:
            await run_of(scripted(HELLO), prompt=prompt, n=n)
        assert refused.value.param == "prompt"
    settings = Settings(max_choices=6)
    run = await run_of(scripted(HELLO, loop=True), settings, prompt=["a", "b", "c"], n=2)
    assert [choice["index"] for choice in (await run.wait())["choices"]] == list(range(6))
    with pytest.raises(InvalidRequest, match="6 at most"):
        await run_of(scripted(HELLO), settings, prompt=["a"] * 7)


def choices_in_memory() -> int:
    return sum(type(held) is _Choice for held in gc.get_objects())


class Counting(ScriptedEngine):
    """Counts the choices that exist while one generates."""

    most = 0

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self.most = max(self.most, choices_in_memory())
        async with aclosing(super().generate(tokens, sampling)) as steps:
            async for step in steps:
                yield step


async def test_choices_are_made_as_they_begin() -> None:
    before = choices_in_memory()  # of other tests
    engine = Counting(scripted(HELLO, loop=True)._script)
    settings = Settings(max_concurrent=3, max_waiting=0)
    run = await run_of(engine, settings, prompt=[f"prompt {n}" for n in range(12)], seed=7)
    whole = await run.wait()
    assert (len(whole["choices"]), whole["usage"]["completion_tokens"]) == (12, 12 * 3)
    assert engine.most - before <= 4


async def test_each_choice_has_its_seed() -> None:
    engine = replaying(HELLO)
    await (await run_of(engine, prompt=["a", "b"], n=3, seed=10)).wait()
    assert sorted(sampling.seed or 0 for sampling in engine.samplings) == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_all_choices_and_begins_no_more(stream: bool) -> None:
    engine = scripted("word " * 500, loop=True, tokens_per_second=20)
    settings = Settings(max_concurrent=2, max_waiting=2)
    body = {"prompt": ["a"] * 500, "n": 4, "max_tokens": 100, "stream": stream}
    with serving(engine, settings) as url:
        await leave_in_the_middle(f"{url}/completions", body, engine, generations=4)
        await asyncio.sleep(0.5)
        assert engine.active == 0


async def test_a_priority_needs_the_operators_consent() -> None:
    may = Settings(allow_priority=True)
    for priority in (-1_000, 1):
        with pytest.raises(InvalidRequest, match="--allow-priority") as refused:
            await run_of(scripted(HELLO), prompt="a", priority=priority)
        assert refused.value.param == "priority"
        await (await run_of(scripted(HELLO), may, prompt="a", priority=priority)).wait()
    await (await run_of(scripted(HELLO), prompt="a", priority=0)).wait()
