"""Beam search: a search wide enough finds the best continuation; its cost; what it cleans up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from inference.beams import Beam, BeamSearch, search
from inference.engine import EngineFailed, Finish, Sampling
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.contracts.engine_contract import generated
from tests.doubles.engines.table import TableEngine

pytestmark = pytest.mark.anyio
STOP = 9
WORDS = (1, 2, 3, STOP)
LIMIT = 4
SAMPLING = Sampling(stop_token_ids=frozenset({STOP}), max_tokens=LIMIT)


Scored = tuple[tuple[int, ...], float]


def every_continuation(engine: TableEngine, before: Scored = ((), 0.0)) -> Iterator[Scored]:
    """Every continuation within the limit, and its log-probability."""
    for token, logprob in engine.scores([5, *before[0]]):
        scored = (*before[0], token), before[1] + logprob
        if token == STOP or len(scored[0]) == LIMIT:
            yield scored
        else:
            yield from every_continuation(engine, scored)


@pytest.mark.parametrize("seed", range(20))
async def test_a_search_that_is_wide_enough_finds_the_best(seed: int) -> None:
    engine = TableEngine(WORDS, seed)
    best = sorted(every_continuation(engine), key=lambda found: -found[1])[:3]
    found = await search(engine, [5], SAMPLING, width=4**LIMIT, length_penalty=0)
    assert [beam.tokens for beam in found.beams[:3]] == [tokens for tokens, _ in best]
    assert [beam.logprob for beam in found.beams[:3]] == pytest.approx([logprob for _, logprob in best])


@pytest.mark.parametrize("seed", range(20))
async def test_a_wider_search_finds_nothing_worse_and_a_single_beam_is_greedy(seed: int) -> None:
    engine = TableEngine(WORDS, seed)
    [greedy] = (await search(engine, [5], SAMPLING, width=1, length_penalty=0)).beams
    tokens: list[int] = []
    while len(tokens) < LIMIT and STOP not in tokens:
        tokens.append(engine.scores([5, *tokens])[0][0])
    assert list(greedy.tokens) == tokens
    wider = (await search(engine, [5], SAMPLING, width=64, length_penalty=0)).beams
    assert wider[0].logprob >= greedy.logprob - 1e-9


@pytest.mark.parametrize("seed", range(10))
async def test_no_beam_ends_before_the_least_tokens_or_at_an_ignored_id(seed: int) -> None:
    engine = TableEngine(WORDS, seed)
    later = (await search(engine, [5], replace(SAMPLING, min_tokens=2), width=3)).beams
    assert all(STOP not in beam.tokens[:2] for beam in later)
    never = replace(SAMPLING, ignored_stop_ids=frozenset({STOP}))
    for beam in (await search(engine, [5], never, width=3)).beams:
        assert (len(beam.tokens), beam.finish) == (LIMIT, Finish.LENGTH)
        assert STOP not in beam.tokens


@pytest.mark.parametrize("seed", range(10))
async def test_beams_are_in_order_distinct_and_whole(seed: int) -> None:
    engine = TableEngine(WORDS, seed)
    beams = (await search(engine, [5], SAMPLING, width=3)).beams
    assert len({beam.tokens for beam in beams}) == 3
    scores = [beam.score(1.0) for beam in beams]
    assert scores == sorted(scores, reverse=True)
    for beam in beams:
        assert beam.finish is (Finish.STOP if beam.tokens[-1] == STOP else Finish.LENGTH)
        assert STOP not in beam.tokens[:-1]
        assert [scored.token for scored in beam.scores] == list(beam.tokens)
        assert beam.logprob == pytest.approx(sum(scored.logprob for scored in beam.scores))
    assert engine.open_generations == 0
    assert engine.most_open <= 3


def test_the_length_penalty_decides_between_short_and_long() -> None:
    short, long = Beam((1,), (), -1.0), Beam((1, 2, 3, 4), (), -2.0)
    assert short.score(0.0) > long.score(0.0)
    assert short.score(1.0) < long.score(1.0)


async def test_a_search_ends_long_before_the_limit_when_no_better_beam_can_follow() -> None:
    engine = TableEngine((*range(20, 40), STOP), seed=1, context=100_000)
    sampling = Sampling(stop_token_ids=frozenset({STOP}), max_tokens=5_000)
    found = await asyncio.wait_for(search(engine, [5], sampling, width=4, length_penalty=0), 20)
    assert max(len(beam.tokens) for beam in found.beams) < 1_000


async def test_the_beams_of_one_search_are_told_as_generations() -> None:
    engine = TableEngine(WORDS, seed=2)
    of = BeamSearch(engine, width=3, length_penalty=1.0)
    sampling = replace(SAMPLING, logprobs=2, prompt_logprobs=1, temperature=0.3)
    expected = (await search(engine, [5, 1], sampling, width=3)).beams
    found = await asyncio.gather(*(generated(of.engine(rank), sampling, [5, 1]) for rank in range(3)))
    for beam, one in zip(expected, found, strict=True):
        [step] = one.steps
        assert (step.tokens, step.finish) == (beam.tokens, beam.finish)
        assert all(len(scored.top) == 2 for scored in step.logprobs)
        assert step.prompt_logprobs == (None, engine.score([5], 1, 1))


async def test_a_search_without_readers_ends() -> None:
    engine = TableEngine(range(50), seed=3, context=100_000)
    of = BeamSearch(engine, width=4, length_penalty=1.0)
    sampling = Sampling(stop_token_ids=frozenset(), max_tokens=50_000)
    tasks = [asyncio.create_task(of.found([5], sampling)) for _ in range(4)]
    await asyncio.sleep(0.05)
    assert engine.most_open > 0
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert engine.open_generations == 0


async def test_an_engine_that_breaks_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TableEngine(WORDS, seed=4)

    def broken(before: list[int]) -> list[tuple[int, float]]:
        if len(before) > 2:
            raise EngineFailed("out of memory")
        return TableEngine.scores(engine, before)

    monkeypatch.setattr(engine, "scores", broken)
    with pytest.raises(EngineFailed):
        await search(engine, [5], SAMPLING, width=3)
    assert engine.open_generations == 0


async def test_the_local_engine_is_searched(checkpoint: object) -> None:
    engine = load_local(checkpoint, EngineOptions(device="cpu", context=100), name="small")
    sampling = Sampling(temperature=0, stop_token_ids=frozenset({7}), max_tokens=6)
    greedy = (await search(engine, [1, 2, 3], sampling, width=1)).beams[0]
    found = (await search(engine, [1, 2, 3], sampling, width=4)).beams
    assert greedy.tokens == (await generated(engine, sampling, [1, 2, 3])).tokens
    assert found[0].score(1.0) >= greedy.score(1.0) - 1e-6
    await engine.close()
