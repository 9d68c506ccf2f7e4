"""The contract of every engine: a subclass provides `engine` and inherits the tests.

At temperature 0, the engine must sample at least 40 tokens after the prompt `PROMPT`, and always the same
tokens, whatever else it generates concurrently.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from inference.engine import ContextOverflow, Engine, EngineClosed, Finish, Sampling, Step
from tests.doubles.stored import known

PROMPT = [11, 12, 13, 14, 15]
GREEDY = Sampling(temperature=0.0, stop_token_ids=frozenset(), max_tokens=40)


@dataclass(frozen=True)
class Generated:
    tokens: tuple[int, ...]
    finish: Finish | None
    steps: tuple[Step, ...]


async def generated(
    engine: Engine, sampling: Sampling = GREEDY, prompt: list[int] | None = None
) -> Generated:
    async with aclosing(engine.generate(PROMPT if prompt is None else prompt, sampling)) as stream:
        steps = [step async for step in stream]
    tokens = tuple(token for step in steps for token in step.tokens)
    return Generated(tokens, steps[-1].finish if steps else None, tuple(steps))


async def becomes_idle(engine: Engine) -> None:
    """Waits for every slot to become free, which takes about one token's time."""
    for _ in range(200):
        if engine.active == 0:  # type: ignore[attr-defined]
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{engine.active} generations still hold a slot")  # type: ignore[attr-defined]


@pytest.mark.anyio
class EngineContract:
    @pytest.fixture
    def engine(self) -> Engine | AsyncIterator[Engine]:
        raise NotImplementedError

    async def test_only_the_last_step_has_the_finish_and_may_be_empty(self, engine: Engine) -> None:
        found = await generated(engine)
        assert found.finish is Finish.LENGTH
        assert all(step.finish is None and step.tokens for step in found.steps[:-1])

    async def test_max_tokens_is_obeyed(self, engine: Engine) -> None:
        whole = await generated(engine)
        for limit in (0, 1, 2, 15, 16, 17, 39):
            found = await generated(engine, replace(GREEDY, max_tokens=limit))
            assert (found.tokens, found.finish) == (whole.tokens[:limit], Finish.LENGTH)

    async def test_a_stop_token_ends_the_generation_and_is_part_of_it(self, engine: Engine) -> None:
        whole = (await generated(engine)).tokens
        for stop in (whole[at] for at in (0, 1, 15, 16, 38)):
            found = await generated(engine, replace(GREEDY, stop_token_ids=frozenset({stop})))
            assert (found.tokens, found.finish) == (whole[: whole.index(stop) + 1], Finish.STOP)

    async def test_a_stop_token_as_the_last_of_max_tokens_is_a_stop(self, engine: Engine) -> None:
        whole = (await generated(engine)).tokens
        limit = whole.index(whole[20]) + 1
        stops = frozenset({whole[20]})
        found = await generated(engine, replace(GREEDY, stop_token_ids=stops, max_tokens=limit))
        assert found.finish is Finish.STOP

    async def test_a_generation_continues_where_another_stopped(self, engine: Engine) -> None:
        whole = (await generated(engine)).tokens
        for at in (1, 15, 16, 39):
            rest = replace(GREEDY, max_tokens=len(whole) - at, continued=whole[:at])
            assert (await generated(engine, rest, [*PROMPT, *whole[:at]])).tokens == whole[at:], at

    async def test_a_prompt_without_room_for_a_token_is_refused_before_any_step(self, engine: Engine) -> None:
        length = engine.info.context_length
        stream = engine.generate([1] * length, GREEDY)
        with pytest.raises(ContextOverflow) as caught:
            await anext(stream)
        assert (caught.value.prompt_tokens, caught.value.context_length) == (length, length)
        assert str(length) in str(caught.value)
        await becomes_idle(engine)

    async def test_a_full_context_ends_with_length(self, engine: Engine) -> None:
        prompt = [1] * (engine.info.context_length - 3)
        found = await generated(engine, replace(GREEDY, max_tokens=None), prompt)
        assert (len(found.tokens), found.finish) == (3, Finish.LENGTH)

    async def test_concurrent_generations_do_not_mix(self, engine: Engine) -> None:
        alone = (await generated(engine)).tokens
        together = await asyncio.gather(*(generated(engine) for _ in range(5)))
        assert [found.tokens for found in together] == [alone] * 5

    async def test_closing_the_stream_frees_its_slot(self, engine: Engine) -> None:
        stream = engine.generate(PROMPT, replace(GREEDY, max_tokens=None))
        await anext(stream)
        assert engine.active == 1  # type: ignore[attr-defined]
        await stream.aclose()
        await becomes_idle(engine)

    async def test_a_cancelled_reader_frees_its_slot(self, engine: Engine) -> None:
        tasks = [asyncio.create_task(generated(engine)) for _ in range(4)]
        await asyncio.sleep(0.001)
        for task in tasks[:2]:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(found, (Generated, asyncio.CancelledError)) for found in ended)
        assert all(isinstance(found, Generated) for found in ended[2:])
        await becomes_idle(engine)

    async def test_a_stream_that_is_never_read_holds_nothing(self, engine: Engine) -> None:
        stream = engine.generate(PROMPT, GREEDY)
        await stream.aclose()
        await becomes_idle(engine)

    async def test_the_event_loop_keeps_running_during_generation(self, engine: Engine) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        await generated(engine)
        ticking.cancel()
        assert ticks > 0

    async def test_each_token_has_a_logprob_if_requested(self, engine: Engine) -> None:
        if "logprobs" not in engine.info.honours:
            pytest.skip("this engine has no logprobs")
        found = await generated(engine, replace(GREEDY, logprobs=1))
        for step in found.steps:
            assert tuple(entry.token for entry in known(step.logprobs)) == step.tokens
            assert all(entry.logprob <= 0 and len(entry.top) == 1 for entry in known(step.logprobs))
        silent = await generated(engine, replace(GREEDY, max_tokens=8))
        assert all(step.logprobs is None for step in silent.steps)

    async def test_chosen_tokens_have_logprobs_in_place_of_the_likeliest(self, engine: Engine) -> None:
        if "alternatives" not in engine.info.honours:
            pytest.skip("this engine does not report chosen tokens")
        one = replace(GREEDY, max_tokens=1, logprobs=3)
        wanted = dict(known((await generated(engine, one)).steps[0].logprobs)[0].top)
        among = replace(one, alternatives=tuple(reversed(wanted)))
        scores = dict(known((await generated(engine, among)).steps[0].logprobs)[0].top)
        summand = max(wanted.values()) - max(scores.values())
        assert {token: score + summand for token, score in scores.items()} == pytest.approx(wanted, abs=1e-3)

    async def test_a_prompt_is_scored_if_requested_even_if_it_is_cached(self, engine: Engine) -> None:
        if not engine.info.scores_prompts:
            pytest.skip("this engine does not score prompts")
        prompt = [11 + number % 7 for number in range(70)]
        few = replace(GREEDY, max_tokens=8)
        await generated(engine, few, prompt)
        for _ in range(2):
            first, *others = (await generated(engine, replace(few, prompt_logprobs=2), prompt)).steps
            unscored, *rest = known(first.prompt_logprobs)
            assert unscored is None, "the first token has no score"
            scored = [entry for entry in rest if entry is not None]
            assert [entry.token for entry in scored] == prompt[1:]
            assert all(len(entry.top) == 2 and entry.logprob <= entry.top[0][1] for entry in scored)
            for entry in scored:  # the rank of the prompt's token, whether or not it is among the likeliest
                likeliest = [token for token, _ in entry.top]
                place = likeliest.index(entry.token) + 1 if entry.token in likeliest else None
                assert entry.rank == place if place is not None else known(entry.rank) > 2
            assert all(step.prompt_logprobs is None for step in others)

    async def test_prompt_scores_equal_the_scores_of_sampled_tokens(self, engine: Engine) -> None:
        if not engine.info.scores_prompts:
            pytest.skip("this engine does not score prompts")
        sampled = await generated(engine, replace(GREEDY, logprobs=1))
        scores = [entry.logprob for step in sampled.steps for entry in step.logprobs or ()]
        whole = [*PROMPT, *sampled.tokens]
        again = await generated(engine, replace(GREEDY, prompt_logprobs=0, max_tokens=1), whole)
        of_prompt = [entry.logprob for entry in known(again.steps[0].prompt_logprobs)[len(PROMPT) :] if entry]
        assert of_prompt == pytest.approx(scores, abs=1e-4)

    async def test_a_closed_engine_raises(self, engine: Engine) -> None:
        stream = engine.generate(PROMPT, replace(GREEDY, max_tokens=None))
        await anext(stream)
        await engine.close()
        with pytest.raises(EngineClosed):
            async for _ in stream:
                pass
        with pytest.raises(EngineClosed):
            await anext(engine.generate(PROMPT, GREEDY))
        await engine.close()
