"""An engine that cannot step any more: how it finds out, whom it tells, and when it recovers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from inference.backends.callable_engine import CallableEngine
from inference.engine import EngineFailed, Sampling
from inference.failures import IN_A_ROW, Failures
from inference.local.engine import LocalEngine
from tests.contracts.engine_contract import generated
from tests.doubles.inference.breaking import BreakingRunner, breaking_engine

pytestmark = pytest.mark.anyio
ONE = Sampling(temperature=0.0, max_tokens=1)


Broken = tuple[LocalEngine, BreakingRunner]


@pytest.fixture
async def broken() -> AsyncIterator[Broken]:
    engine, runner = breaking_engine()
    yield engine, runner
    await engine.close()


async def fails(engine: LocalEngine | CallableEngine, times: int) -> None:
    for _ in range(times):
        with pytest.raises(EngineFailed):
            await generated(engine, ONE, prompt=[1, 2, 3])


async def says(engine: LocalEngine, why: str) -> None:
    """Its check and its generations state why none can succeed any more."""
    for trial in (engine.check(), generated(engine, ONE, prompt=[1])):
        with pytest.raises(EngineFailed, match=why):
            await trial


async def test_an_engine_is_sound_until_several_steps_failed_in_a_row(broken: Broken) -> None:
    engine, runner = broken
    runner.failure = RuntimeError("the card fell out")
    await fails(engine, IN_A_ROW - 1)
    launched = runner.launched
    await engine.check()
    assert runner.launched == launched  # it costs no step
    await fails(engine, 1)
    with pytest.raises(EngineFailed, match=f"{IN_A_ROW} steps failed in a row, and a check with one token"):
        await engine.check()


async def test_failures_that_a_success_interrupts_are_not_in_a_row(broken: Broken) -> None:
    engine, runner = broken
    for _ in range(IN_A_ROW):
        runner.failure = RuntimeError("once")
        await fails(engine, IN_A_ROW - 1)
        runner.failure = None
        await generated(engine, ONE, prompt=[1])
    await engine.check()


async def test_the_check_itself_finds_that_the_engine_works_again(broken: Broken) -> None:
    engine, runner = broken
    runner.failure = RuntimeError("for a while")
    await fails(engine, IN_A_ROW)
    with pytest.raises(EngineFailed):
        await engine.check()
    runner.failure = None
    await engine.check()
    launched = runner.launched
    await engine.check()
    assert runner.launched == launched  # sound again, so nothing more is tried


async def test_requests_that_no_engine_could_serve_do_not_break_it(broken: Broken) -> None:
    """The check samples a token, so that a hostile client cannot take a server out of service."""
    engine, runner = broken
    runner.failure = RuntimeError("at the client's own prompt")
    await fails(engine, 10 * IN_A_ROW)
    runner.failure = None
    await engine.check()


async def test_a_device_that_computes_nothing_any_more_is_never_sound_again(broken: Broken) -> None:
    engine, runner = broken
    runner.failure, runner.trouble = RuntimeError("CUDA error"), "The device cuda:0 computes nothing."
    await fails(engine, 1)
    runner.failure = None
    await says(engine, "The device cuda:0 computes nothing")


async def test_a_thread_that_dies_ends_all_its_generations_and_is_reported(broken: Broken) -> None:
    engine, runner = broken
    runner.failure = SystemExit(1)
    ended = await asyncio.wait_for(
        asyncio.gather(*(generated(engine, ONE, prompt=[n]) for n in (1, 2, 3)), return_exceptions=True), 20
    )
    assert [type(each) for each in ended] == [EngineFailed] * 3
    await asyncio.to_thread(engine._loop._thread.join, 20)
    await says(engine, "thread ended with SystemExit")


async def test_a_function_that_fails_every_time_is_reported() -> None:
    works = False

    def infer(tokens: list[int], temperature: float) -> int:
        if not works:
            raise OSError("no such card")
        return 200002

    engine = CallableEngine(infer)
    await fails(engine, IN_A_ROW)
    with pytest.raises(EngineFailed, match="a check with one token failed"):
        await engine.check()
    works = True
    await engine.check()
    await engine.close()


async def test_a_check_that_gets_no_token_in_its_time_fails_unless_others_succeed() -> None:
    async def silent(prompt: object, sampling: Sampling) -> AsyncIterator[object]:
        await asyncio.sleep(60)
        yield

    failures = Failures(seconds=0.05)
    for _ in range(IN_A_ROW):
        failures.failed()
    with pytest.raises(EngineFailed, match=r"sampled nothing within 0\.05 s"):
        await failures.check(silent)  # type: ignore[arg-type]
    asyncio.get_running_loop().call_soon(failures.succeeded)
    await failures.check(silent)  # type: ignore[arg-type]
