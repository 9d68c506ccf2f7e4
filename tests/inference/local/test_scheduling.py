"""Over random schedules, batching, chunks, preemption, prefixes, drafts and steps ahead change no token."""

import itertools
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from inference.engine import CheckpointError, EngineFailed, Finish, Sampling
from inference.local.memory_plan import LayerKind, plan_memory
from inference.local.scheduling.block_pool import IntegrityError
from inference.local.scheduling.drafts import ON_CPU, HeadDrafter, costs_on_gpu
from inference.local.scheduling.prefix_cache import PrefixCache
from inference.local.scheduling.scheduler import SchedulerLimits
from tests.doubles.inference.driven import Client, Driven, MemoryRunner, Prompts, check
from tests.doubles.random_tests.seeds import seeds

SIZE = 4
CONTEXT = 160
SAMPLING = Sampling(temperature=0.0)
KINDS = ((None, 10), (10, None), (None,), (7,), (2, None))


def driven(
    limits: SchedulerLimits,
    windows: tuple[int | None, ...] = (10, None),
    *,
    spare: int = 0,
    context: int = CONTEXT,
) -> Driven:
    """With the least possible memory, and `spare` bytes more (a token of one kind is a byte)."""
    kinds = [LayerKind(window, 1) for window in windows]
    shape = {"context": context, "may_shorten": False, "limits": limits, "block_size": SIZE}
    for least in itertools.count(1, SIZE):
        with suppress(CheckpointError):  # too little: try more
            plan = plan_memory(kinds, least, **shape)
            break
    plan = plan_memory(kinds, least + spare, **shape)
    runner = MemoryRunner(windows, SIZE, limits.ahead)
    return Driven(runner, windows, plan.blocks, limits)


def random_limits(draw: random.Random) -> SchedulerLimits:
    by_head = draw.random() < 0.3
    sizes = {"max_concurrent": [1, 2, 5, 9], "chunk": [5, 16, 64], "shared_chunk": [3, 8, 32]}
    chosen = {name: draw.choice(few) for name, few in (sizes | {"least_chunk": [1, 3, 8]}).items()}
    drafts, ahead = (3, 0) if by_head else (draw.choice([0, 0, 3]), draw.choice([0, 0, 1]))
    return SchedulerLimits(max_waiting=10_000, by_head=by_head, drafts=drafts, ahead=ahead, **chosen)


@pytest.mark.parametrize("seed", seeds(12, proofs=40))
async def test_every_sequence_gets_the_tokens_it_would_get_alone(seed: int) -> None:
    draw = random.Random(seed)
    engine = driven(random_limits(draw), draw.choice(KINDS), spare=draw.choice([0, 0, 50, 400]))
    prompts = Prompts(draw, CONTEXT // 2)
    for _ in range(250):
        action = draw.choices(["request", "turn", "read", "leave"], [4, 8, 3, 1])[0]
        if action == "request":
            fields = {"cache_salt": [None, None, "a"], "priority": [0, 0, 1], "owner": ["", "", "a", "b"]}
            sampling = replace(SAMPLING, **{name: draw.choice(values) for name, values in fields.items()})
            limit = draw.choice([1, 5, 30, 80])
            engine.request(prompts.next(), limit, sampling, capacity=draw.choice([3, 10_000]))
        elif action == "turn" or not engine.clients:
            engine.turn()
        elif action == "read":
            draw.choice(engine.clients).read()
        else:
            engine.leave(draw.choice(engine.clients))
    engine.finish()
    for client in engine.clients:
        check(client)
    assert engine.cache.used == 0
    engine.cache.check_integrity([])


def ends(engine: Driven, clients: list[Client]) -> list[int]:
    """The order in which they end."""
    order: list[int] = []
    while engine.turn():
        for at, client in enumerate(clients):
            client.read()
            if client.end is not None and at not in order:
                order.append(at)
    return order


async def test_memory_that_runs_out_ends_no_sequence_and_stops_never_the_oldest() -> None:
    engine = driven(SchedulerLimits(max_concurrent=5, max_waiting=10, chunk=64))
    clients = [engine.request([first] * 10, 120, SAMPLING) for first in range(5)]
    assert ends(engine, clients) == [0, 1, 2, 3, 4]
    assert engine.scheduler.counts.preemptions > 0
    for client in clients:
        check(client)


async def test_choices_of_one_prompt_compute_it_once() -> None:
    engine = driven(SchedulerLimits(max_concurrent=8, max_waiting=10, chunk=16), spare=2000)
    clients = [engine.request(list(range(50)), 5, SAMPLING) for _ in range(8)]
    engine.finish()
    assert [client.cached for client in clients] == [0] + [48] * 7
    for client in clients:
        check(client)


async def test_a_prompt_that_is_only_read_serves_the_next_one() -> None:
    engine = driven(SchedulerLimits(max_concurrent=1, max_waiting=10), spare=2000)
    for prompt in ([5], list(range(40))):
        reader = engine.request(prompt, 0, SAMPLING)
        engine.finish()
        assert (reader.tokens, reader.end) == ([], Finish.LENGTH)
    after_it = engine.request([*range(40), 1, 2], 5, SAMPLING)
    engine.finish()
    assert after_it.cached == 40
    check(after_it)


async def test_a_salt_keeps_prompts_apart() -> None:
    engine = driven(SchedulerLimits(max_concurrent=1, max_waiting=10), spare=2000)
    salts = [None, "a", "a", None, "b"]
    clients = [engine.request(list(range(40)), 2, replace(SAMPLING, cache_salt=salt)) for salt in salts]
    engine.finish()
    assert [client.cached for client in clients] == [0, 0, 36, 36, 0]


def tight() -> Driven:
    """Little memory for windows: two sequences, a chunk, and a few more."""
    limits = SchedulerLimits(max_concurrent=2, max_waiting=10, chunk=16, least_chunk=8, shared_chunk=8)
    return Driven(MemoryRunner((10, None), SIZE), (10, None), (27, 400), limits)


@pytest.mark.parametrize("marked", [True, False])
async def test_a_turn_that_loses_its_analysis_finds_its_prompt(
    monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    """The window before the prompt's end is kept, although the answer and other sequences have moved on."""
    if not marked:
        monkeypatch.setattr(PrefixCache, "_is_marked", lambda *_: False)
    engine = tight()
    prompt = [at % 37 for at in range(100)]
    engine.request(prompt, 60, SAMPLING)
    engine.finish()
    for first in range(3):
        engine.request([40 + first] * 30, 20, SAMPLING)
    engine.finish()
    second = engine.request([*prompt, 1, 2, 3], 5, SAMPLING)
    engine.finish()
    check(second)
    assert (second.cached == 100) is marked


async def test_prompts_that_diverge_find_their_shared_prefix_repeatedly() -> None:
    engine = tight()
    for tail in range(6):
        client = engine.request([*range(48), *[tail] * 120], 3, SAMPLING)
        engine.finish()
        check(client)
        assert client.cached == 48 or tail < 2


async def test_the_lowest_priority_starts_first() -> None:
    engine = driven(SchedulerLimits(max_concurrent=1, max_waiting=10))
    clients = [engine.request([1, n], 2, replace(SAMPLING, priority=n)) for n in (2, 1, 0, 1)]
    assert ends(engine, clients) == [2, 1, 3, 0]


async def test_a_stalled_reader_holds_neither_slot_nor_memory_that_others_wait_for() -> None:
    engine = driven(SchedulerLimits(max_concurrent=1, max_waiting=10))
    lazy = engine.request([1, 2, 3], 60, SAMPLING, capacity=5)
    while engine.turn():
        pass
    assert len(lazy.outbox._tokens) == 5
    other = engine.request([4, 5], 20, SAMPLING)
    while engine.turn():
        pass
    other.read()
    check(other)
    engine.finish()
    check(lazy)


@pytest.mark.parametrize("by_head", [False, True])
async def test_right_drafts_save_steps_and_wrong_ones_change_nothing(by_head: bool) -> None:
    steps = {}
    for drafts in (0, 4):
        engine = driven(SchedulerLimits(max_concurrent=1, max_waiting=1, drafts=drafts, by_head=by_head))
        client = engine.request([1, 2, 3], 100, SAMPLING)
        engine.finish()
        check(client)
        steps[drafts] = engine.scheduler.counts.steps
    counts = engine.scheduler.counts
    assert counts.drafted_tokens > 0
    assert steps[4] == steps[0] - counts.accepted_tokens


async def test_a_defect_in_the_scheduler_ends_current_sequences_and_no_later_ones() -> None:
    engine = driven(SchedulerLimits(max_concurrent=2, max_waiting=5))
    unlucky = [engine.request([first] * 20, 5, SAMPLING) for first in range(3)]
    engine.turn()
    engine.loop._reset(EngineFailed("a defect"))
    for client in unlucky:
        client.read()
        assert isinstance(client.end, EngineFailed)
    assert engine.loop.active == engine.cache.used == 0
    engine.clients = [engine.request([9] * 20, 5, SAMPLING)]
    engine.turn()
    with pytest.raises(IntegrityError):
        engine.cache.check_integrity([])  # blocks are held, and by no sequence
    engine.finish()
    check(engine.clients[0])


def test_the_context_does_not_vary_with_the_free_memory() -> None:
    def planned(free: int, steady: int) -> int:
        limits = SchedulerLimits(max_concurrent=2, max_waiting=1)
        shape = {"context": 100_000, "may_shorten": True, "limits": limits, "block_size": SIZE}
        plan = plan_memory([LayerKind(None, 1)], free, steady=steady, **shape)
        assert plan.whole_tokens >= plan.context, "one sequence of the whole context has its blocks"
        return plan.context

    assert {planned(free, 200_000) for free in (0, 1000, 10_000_000)} == {100_000}
    [shortened] = {planned(free, 50_000) for free in (0, 1000, 10_000_000)}
    assert 40_000 < shortened < 50_000


def test_a_head_is_asked_for_as_many_guesses_as_are_likely_to_be_right() -> None:
    drafter = HeadDrafter(4, ON_CPU)
    drafter.take([1, 2, 3, 4])
    assert drafter.draft([], 3) == [1, 2, 3]
    assert drafter.draft([], 3) == []  # a guess is for one step
    assert drafter.wanted(1) == 4
    asked = []
    while wanted := drafter.wanted(1):
        asked.append(wanted)
        drafter.learn(wanted, 0)
    assert asked == sorted(asked, reverse=True)
    assert (asked[0], asked[-1]) == (4, 1)
    assert 5 < len(asked) < 20
    for _ in range(40):
        drafter.learn(1, 1)
    assert drafter.wanted(1) == 4


def test_the_more_sequences_share_a_step_the_likelier_a_guess_must_be() -> None:
    drafter = HeadDrafter(4, ON_CPU)  # right in 7 of 10 cases, as far as it knows
    assert [drafter.wanted(running) for running in (1, 2, 4, 8, 32)] == [4, 3, 1, 0, 0]
    assert ON_CPU.worth(1000) == 1.0
    for _ in range(40):
        drafter.learn(1, 1)
    assert drafter.wanted(8) == 4


def test_on_a_gpu_many_rows_share_their_experts() -> None:
    """There a few sequences make a further row dear, many make it cheap."""
    costs = costs_on_gpu(32, 4)
    assert costs.worth(4) > costs.worth(1) > costs.worth(16) > costs.worth(32)
    assert costs_on_gpu(128, 4).worth(16) > 2 * costs.worth(16)
    drafter = HeadDrafter(4, costs)
    for _ in range(6):
        assert drafter.wanted(32) > 0
        drafter.learn(1, 0)
    assert drafter.wanted(4) == 1  # a trial
    drafter.learn(1, 0)
    assert [drafter.wanted(4) for _ in range(3)] == [0, 0, 1]
    assert drafter.wanted(32) > 0


def test_a_head_that_is_hardly_ever_right_rests_longer_and_longer() -> None:
    drafter = HeadDrafter(4, ON_CPU)
    while drafter.wanted(1):
        drafter.learn(4, 0)
    rests = []
    for _ in range(4):
        rest = 1
        while drafter.wanted(1) == 0:
            rest += 1
        rests.append(rest)
        drafter.learn(1, 0)
        assert drafter.wanted(1) == 0
    assert rests[1:] == [2 * rest for rest in rests[:-1]]
    drafter.learn(1, 1)
    assert drafter.wanted(1) > 0


async def test_guesses_take_no_blocks_of_other_sequences() -> None:
    counts = []
    for drafts in (0, 3):
        limits = SchedulerLimits(max_concurrent=2, max_waiting=9, drafts=drafts, by_head=drafts > 0)
        engine = driven(limits, (None,), context=64)
        for client in [engine.request([start] * 20, 40, SAMPLING) for start in (1, 2)]:
            engine.finish()
            check(client)
        counts.append(engine.scheduler.counts)
    assert counts[1].accepted_tokens > 0
    assert counts[1].preemptions <= counts[0].preemptions
