"""An engine that cannot step any more: how it finds out, whom it tells, and when it recovers.
Owners have equal shares of the slots, whatever each of them has sent, and all work is done in the end.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from inference.backends.callable_engine import CallableEngine
from inference.engine import EngineFailed, Sampling
from inference.failures import IN_A_ROW, Failures
from inference.local.engine import LocalEngine
from inference.local.scheduling.fairness import may_give_way, running_counts, that_gives_way
from inference.local.scheduling.scheduler import SchedulerLimits
from tests.contracts.engine_contract import generated
from tests.doubles.inference.breaking import BreakingRunner, breaking_engine
from tests.doubles.inference.driven import Client, Driven
from tests.doubles.random_tests.seeds import seeds
from tests.inference.local.test_scheduling import check, driven

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


OF = {owner: Sampling(temperature=0.0, owner=owner) for owner in "abc"}
LIMITS = SchedulerLimits(max_concurrent=8, max_waiting=10_000, chunk=64, shared_chunk=16, least_chunk=4)


def send(engine: Driven, owner: str, count: int, tokens: int = 60, **options: int) -> list[Client]:
    prompts = [[random.Random(f"{owner}{n}").randrange(40) for _ in range(20)] for n in range(count)]
    sampling = replace(OF[owner], **options)  # type: ignore[arg-type]
    return [engine.request(prompt, tokens, sampling, capacity=10_000) for prompt in prompts]


def running(engine: Driven) -> Counter[str]:
    return running_counts(engine.scheduler.running)


def turns(engine: Driven, count: int) -> None:
    for _ in range(count):
        engine.turn()


def ended(clients: list[Client]) -> int:
    for client in clients:
        client.read()
    return sum(client.end is not None for client in clients)


def finish(engine: Driven, clients: list[Client]) -> int:
    """The turns until these are done, each as it would be alone."""
    for passed in range(20_000):
        if ended(clients) == len(clients):
            for client in clients:
                check(client)
            return passed
        engine.turn()
    raise AssertionError("they never end")


async def test_one_request_gets_a_slot_although_all_are_taken() -> None:
    engine = driven(LIMITS, spare=4_000)
    many = send(engine, "a", 50)
    turns(engine, 10)
    assert running(engine) == {"a": 8}
    [one] = send(engine, "b", 1)
    assert finish(engine, [one]) < 100, "it waits for none of the fifty"
    assert ended(many) < 20
    finish(engine, many)


async def test_two_owners_share_the_slots_and_one_alone_has_all() -> None:
    engine = driven(LIMITS, spare=4_000)
    first = send(engine, "a", 40)
    turns(engine, 10)
    second = send(engine, "b", 40)
    engine.turn()
    assert running(engine) == {"a": 4, "b": 4}
    finish(engine, first)
    assert ended(second) >= 30, "at the same pace, although they came later"
    finish(engine, second)


async def test_shares_hold_where_memory_is_short() -> None:
    engine = driven(LIMITS)  # room for little more than one whole context
    many = send(engine, "a", 30, 100)
    turns(engine, 20)
    few = send(engine, "b", 2, 100)
    assert finish(engine, few) < 1_500
    finish(engine, many)


async def test_a_new_owners_prompt_is_read_alongside_many() -> None:
    engine = driven(replace(LIMITS, max_concurrent=20), spare=8_000)
    many = [engine.request([n] * 100, 5, OF["a"], capacity=10_000) for n in range(19)]
    engine.turn()
    one = engine.request([30] * 100, 5, OF["b"], capacity=10_000)
    finish(engine, [one])
    assert ended(many) < 10
    finish(engine, many)


async def test_a_priority_precedes_all_shares() -> None:
    engine = driven(replace(LIMITS, max_concurrent=2), spare=4_000)
    send(engine, "a", 4, priority=1)
    engine.turn()
    urgent = send(engine, "b", 4, priority=0)
    finish(engine, urgent)
    assert running(engine)["a"] <= 2


@pytest.mark.parametrize("seed", seeds(5, proofs=15))
async def test_nobody_starves(seed: int) -> None:
    draw = random.Random(seed)
    limits = replace(LIMITS, max_concurrent=draw.choice([1, 2, 5]), ahead=draw.choice([0, 1]))
    engine = driven(limits, spare=draw.choice([0, 100, 4_000]))
    clients: list[Client] = []
    for _ in range(30):
        clients += send(engine, draw.choice("abc"), draw.randrange(4), draw.choice([1, 20, 80]))
        turns(engine, draw.randrange(20))
    finish(engine, clients)


@pytest.mark.parametrize("seed", seeds(6, proofs=20))
async def test_the_cheap_look_at_a_long_queue_agrees_with_the_exact_one(seed: int) -> None:
    engine, rng = driven(LIMITS), random.Random(seed)
    for owner in "abc":
        send(engine, owner, 12)
    engine.turn()
    for _ in range(50):
        pool = rng.sample(engine.scheduler.waiting, 20)
        size = rng.randrange(1, 9)
        running, waiting = pool[:size], pool[size : size + rng.randrange(1, 6)]
        counts = running_counts(running)
        found = [that_gives_way(running, each, counts) for each in waiting]
        assert may_give_way(waiting, counts) is any(each is not None for each in found)
