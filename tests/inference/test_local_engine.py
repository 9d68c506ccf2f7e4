"""What the local engine promises beyond the contract: isolation, bounds, fairness, and memory given back."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.engine import CheckpointError, EngineFailed, Finish, Sampling, Step
from inference.local import outbox as outbox_module
from inference.local import traffic as traffic_module
from inference.local.engine import LocalEngine, load_local, read_generation_defaults
from inference.models.gpt_oss import GptOss, load_model
from inference.models.kv_cache import KVCache
from tests.contracts.engine_contract import GREEDY, PROMPT, becomes_idle, generated

pytestmark = pytest.mark.anyio
ENDLESS = replace(GREEDY, max_tokens=None)


@pytest.fixture
async def engine(checkpoint: Path) -> AsyncIterator[LocalEngine]:
    engine = load_local(checkpoint, name="small", device="cpu", any_vocabulary=True)
    yield engine
    await engine.close()


def break_model(
    monkeypatch: pytest.MonkeyPatch,
    when: Callable[[KVCache], bool],
    breakage: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    original = GptOss.next_logits

    def broken(self: GptOss, tokens: list[int], cache: KVCache) -> torch.Tensor:
        logits = original(self, tokens, cache)
        return breakage(logits) if when(cache) else logits

    monkeypatch.setattr(GptOss, "next_logits", broken)


async def test_tokens_are_those_of_the_model_alone(engine: LocalEngine, checkpoint: Path) -> None:
    model = load_model(checkpoint, device=torch.device("cpu"), any_vocabulary=True)
    cache, last, wanted = model.new_cache(), PROMPT, []
    for _ in range(40):
        last = [int(model.next_logits(last, cache).argmax())]
        wanted += last
    assert list((await generated(engine)).tokens) == wanted


async def test_a_prompt_of_many_chunks_is_one_of_one(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = [at % 500 for at in range(100)]
    whole = await generated(engine, prompt=prompt)
    for chunk in (1, 7, 50, 99):
        monkeypatch.setattr(traffic_module, "PREFILL_CHUNK", chunk)
        assert (await generated(engine, prompt=prompt)).tokens == whole.tokens


async def test_a_long_prompt_does_not_hold_up_a_short_one(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic_module, "PREFILL_CHUNK", 8)
    order: list[str] = []

    async def watch(name: str, prompt: list[int], limit: int) -> None:
        await generated(engine, replace(GREEDY, max_tokens=limit), prompt)
        order.append(name)

    await asyncio.gather(watch("long", [1] * 900, 2), watch("short", [1], 5))
    assert order == ["short", "long"]


async def test_chunks_are_smaller_beside_a_generation_that_samples(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Room for all: the reader below does not read meanwhile.
    monkeypatch.setattr(outbox_module.Outbox.__init__, "__defaults__", (10_000,))
    chunks: list[int] = []
    original = GptOss.extend

    def watched(self: GptOss, tokens: list[int], cache: KVCache) -> None:
        chunks.append(len(tokens))
        original(self, tokens, cache)

    monkeypatch.setattr(GptOss, "extend", watched)
    once = replace(GREEDY, max_tokens=1)
    alone = await generated(engine, once, [1] * 600)
    assert chunks == [256, 256]
    chunks.clear()
    async with aclosing(engine.generate([1], ENDLESS)) as stream:
        await anext(stream)
        beside = await generated(engine, once, [1] * 600)
    assert chunks == [64] * 9
    assert beside.tokens == alone.tokens
    await becomes_idle(engine)
    chunks.clear()
    await generated(engine, once, [1] * 600)
    assert chunks == [256, 256]


def test_prompts_share_what_may_be_taken_in_beside_a_generation_that_samples() -> None:
    traffic = traffic_module.Traffic()
    sampling, first, second = (traffic_module.View(traffic) for _ in range(3))
    for _ in range(3):
        sampling.took_turn(of_prompt=False)
        first.took_turn(of_prompt=True)
        second.took_turn(of_prompt=True)
    sampling.took_turn(of_prompt=False)
    assert first.chunk() == 32
    first.took_turn(of_prompt=True)
    assert first.chunk() == traffic_module.PREFILL_CHUNK
    assert second.chunk() == 32


async def test_a_seed_gives_the_same_tokens_beside_others(engine: LocalEngine) -> None:
    seeded = Sampling(seed=5, max_tokens=30, stop_token_ids=frozenset(), top_p=0.9)
    alone = await generated(engine, seeded)
    beside = await asyncio.gather(
        *(generated(engine, replace(seeded, seed=seed)) for seed in (1, 5, None, 7, 5))
    )
    assert beside[1].tokens == beside[4].tokens == alone.tokens
    assert len({found.tokens for found in beside}) == 4


@pytest.mark.parametrize(
    "breakage",
    [lambda logits: logits * float("nan"), lambda logits: logits.no_such_thing],
    ids=["nan", "bug"],
)
async def test_what_breaks_one_generation_breaks_no_other(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, breakage: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    wanted = (await generated(engine)).tokens
    break_model(monkeypatch, lambda cache: cache.length == 200, breakage)
    doomed = asyncio.create_task(generated(engine, ENDLESS, [1] * 190))
    well = [asyncio.create_task(generated(engine)) for _ in range(3)]
    with pytest.raises(EngineFailed):
        await doomed
    assert [(await task).tokens for task in well] == [wanted] * 3
    assert (await generated(engine)).tokens == wanted
    await becomes_idle(engine)


async def test_what_was_sampled_before_a_failure_is_read_first(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_model(monkeypatch, lambda cache: cache.length == 20, lambda logits: logits * float("nan"))
    tokens: list[int] = []

    async def read() -> None:
        async with aclosing(engine.generate([1] * 10, ENDLESS)) as stream:
            async for step in stream:
                tokens.extend(step.tokens)

    with pytest.raises(EngineFailed, match="not finite"):
        await read()
    assert len(tokens) == 10


@pytest.mark.parametrize("prompt", [[], [500], [1, -1]], ids=repr)
async def test_a_prompt_the_model_cannot_read_is_an_error(engine: LocalEngine, prompt: list[int]) -> None:
    with pytest.raises(EngineFailed, match="prompt"):
        await generated(engine, prompt=prompt)


async def test_a_reader_that_does_not_read_stops_its_generation_and_no_other(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module.Outbox.__init__, "__defaults__", (8,))
    async with aclosing(engine.generate([1], ENDLESS)) as stream:
        first = await anext(stream)
        await generated(engine)
        await asyncio.sleep(0.05)
        waiting = await anext(stream)
        assert len(waiting.tokens) == 8
        rest: list[Step] = [first, waiting, *[step async for step in stream]]
    assert sum(len(step.tokens) for step in rest) == engine.info.context_length - 1
    assert rest[-1].finish is Finish.LENGTH


async def test_what_waits_comes_as_one_step(engine: LocalEngine) -> None:
    async with aclosing(engine.generate([1], ENDLESS)) as stream:
        await anext(stream)
        await generated(engine)
        assert len((await anext(stream)).tokens) >= 20


async def test_a_cache_is_dropped_when_its_generation_ends(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches: list[weakref.ref[KVCache]] = []
    original = GptOss.new_cache

    def watched(self: GptOss) -> KVCache:
        cache = original(self)
        caches.append(weakref.ref(cache))
        return cache

    monkeypatch.setattr(GptOss, "new_cache", watched)
    break_model(monkeypatch, lambda cache: cache.length == 200, lambda logits: logits * float("nan"))
    await generated(engine)
    stream = engine.generate(PROMPT, ENDLESS)
    await anext(stream)
    await stream.aclose()
    with pytest.raises(EngineFailed) as caught:
        await generated(engine, ENDLESS, [1] * 199)
    await becomes_idle(engine)
    gc.collect()
    assert len(caches) == 3
    assert [cache() for cache in caches] == [None] * 3
    assert caught.value is not None  # the error is still held, its cache is not


@pytest.mark.parametrize(
    "content", ['{"temperature": 0.7, "top_p": null}', "{}", "[]", '{"top_p": "x"}', None]
)
def test_defaults_of_the_checkpoint_are_told(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_text(content, encoding="utf-8")
    if content in ("[]", '{"top_p": "x"}'):
        with pytest.raises(CheckpointError, match="generation_config"):
            read_generation_defaults(tmp_path)
    else:
        wanted = {"temperature": 0.7} if content and "0.7" in content else {}
        assert read_generation_defaults(tmp_path) == wanted
