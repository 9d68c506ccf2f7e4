"""The GPU runner on the CPU, where it computes the same steps but records none.

It runs one step ahead of the host's reading and keeps tables, newest tokens and penalties on the device.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest
import torch

from inference.engine import EngineFailed, EngineInfo, Sampling, TokenLogprob
from inference.local import engine as engines
from inference.local.cuda.inputs import StepShape, decode_shape, holding, shapes_for
from inference.local.cuda.recordings import Recordings
from inference.local.cuda.runner import CudaRunner
from inference.local.engine import EngineOptions, LocalEngine
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss
from tests.contracts.engine_contract import Generated, generated
from tests.contracts.remote_contract import scores
from tests.doubles.inference.driven import alone
from tests.doubles.inference.on_gpu import run_as_on_a_gpu

CPU = torch.device("cpu")
INFO = EngineInfo(name="random", context_length=1024, vocab_size=500)


def plain(model: GptOss, **options: object) -> LocalEngine:
    return engines.start_engine(model, INFO, EngineOptions(**options))  # type: ignore[arg-type]


def ahead(
    model: GptOss, monkeypatch: pytest.MonkeyPatch, *, padded: bool = False, **options: object
) -> LocalEngine:
    run_as_on_a_gpu(monkeypatch, padded=padded)
    return plain(model, **options)


def close(found: Sequence[TokenLogprob | None], wanted: Sequence[TokenLogprob | None]) -> None:
    """The same tokens with the same likeliest ones, whose sums differ in the last bits."""
    assert len(found) == len(wanted)
    for own, other in zip(found, wanted, strict=True):
        if own is None or other is None:
            assert own is other
        else:
            assert (own.token, [token for token, _ in own.top]) == (other.token, [t for t, _ in other.top])
            assert own.logprob == pytest.approx(other.logprob, abs=1e-4)


def prompts(count: int) -> list[list[int]]:
    draw = random.Random(11)
    shared = [draw.randrange(500) for _ in range(40)]
    return [
        (shared if draw.random() < 0.5 else []) + [draw.randrange(500) for _ in range(draw.randrange(1, 70))]
        for _ in range(count)
    ]


class Odd:
    """A grammar that allows only odd tokens, and none twice in a row."""

    def __init__(self) -> None:
        self._last = -1

    def start(self) -> Odd:
        return Odd()

    def mask(self) -> bytes:
        allowed = [token % 2 == 1 and token != self._last for token in range(480)]
        return bytes(sum(allowed[at + bit] << bit for bit in range(8)) for at in range(0, 480, 8))

    def accept(self, token: int) -> None:
        if token % 2 == 0:
            raise EngineFailed("even")
        self._last = token


FREE = Sampling(temperature=0.0, max_tokens=15, stop_token_ids=frozenset())
SAMPLINGS = [
    replace(FREE, **fields)  # type: ignore[arg-type]
    for fields in (
        {"max_tokens": 30},
        {"max_tokens": 40, "stop_token_ids": frozenset(range(0, 500, 17))},
        {"temperature": 0.9, "seed": 4},
        {"temperature": 0.7, "seed": 5, "top_p": 0.8},
        {"temperature": 1.1, "seed": 6, "top_k": 9, "min_p": 0.01},
        {"presence_penalty": 1.5, "frequency_penalty": 0.7, "max_tokens": 30},
        {"logit_bias": {7: 3.0, 499: 2.0, 500: 9.0}},
        {"grammar": Odd()},
        {"temperature": 0.8, "seed": 3, "grammar": Odd(), "frequency_penalty": 0.5},
        {"logprobs": 3},
        {"temperature": 0.6, "seed": 8, "logprobs": 0},
    )
]
REQUESTS = list(zip([*SAMPLINGS, *SAMPLINGS], prompts(2 * len(SAMPLINGS)), strict=True))


@pytest.fixture(scope="module")
async def wanted(model: GptOss) -> list[Generated]:
    """The plain runner's answers, one request after another."""
    one = plain(model, max_concurrent=1)
    found = [await generated(one, *each) for each in REQUESTS]
    await one.close()
    return found


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("speculation", [False, True])
async def test_all_samplings_run_concurrently_give_the_plain_runners_tokens(
    model: GptOss, wanted: list[Generated], monkeypatch: pytest.MonkeyPatch, speculation: bool, padded: bool
) -> None:
    many = ahead(model, monkeypatch, padded=padded, max_concurrent=6, speculation=speculation)
    found = await asyncio.gather(*(generated(many, *each) for each in REQUESTS))
    await many.close()
    for (sampling, _), own, other in zip(REQUESTS, found, wanted, strict=True):
        assert own.tokens == other.tokens, sampling
        close(scores(own), scores(other))


async def test_little_memory_and_clients_that_disconnect_do_not_disturb_others(
    model: GptOss, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = replace(FREE, max_tokens=40)
    small = ahead(model, monkeypatch, max_concurrent=5, kv_memory=1_000_000)

    async def read_some(prompt: list[int], count: int) -> None:
        async with aclosing(small.generate(prompt, sampling)) as steps:
            tokens: list[int] = []
            async for step in steps:
                tokens += step.tokens
                if len(tokens) >= count:
                    break
        assert tokens == alone(model, prompt, len(tokens))

    counts = [40, 3, 40, 1, 40, 40, 10, 40, 5, 40]
    await asyncio.gather(*map(read_some, prompts(10), counts))
    assert small.active == 0
    await small.close()


async def test_prompt_scores_equal_those_of_the_plain_runner(
    model: GptOss, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = replace(FREE, prompt_logprobs=2, max_tokens=2)
    found = []
    for engine in (plain(model), ahead(model, monkeypatch)):
        steps = (await generated(engine, sampling, prompts(1)[0])).steps
        found.append([each for step in steps for each in step.prompt_logprobs or ()])
        await engine.close()
    close(*found)
    assert [score if score is None else len(score.top) for score in found[0]] == [None] + [2] * len(
        found[0][1:]
    )


async def test_logits_that_are_not_finite_end_only_their_own_generation(
    model: GptOss, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ahead(model, monkeypatch, max_concurrent=4)
    good = asyncio.create_task(generated(engine, FREE))
    with pytest.raises(EngineFailed, match="not finite"):
        await generated(engine, replace(FREE, logit_bias={3: float("nan")}))
    assert len((await good).tokens) == 15
    await engine.close()


def test_only_new_entries_of_a_table_are_sent(model: GptOss) -> None:
    runner = CudaRunner(model, [40] * len(model.config.windows), 2, 16)
    picker = runner.picker(SAMPLINGS[0])

    def step(tokens: list[int], start: int, tables: list[list[int]]) -> list[int]:
        flight = runner.launch([StepPart(1, tokens, start, tables, 1, picker)])
        return [found.token for found in flight.outcomes()[0].sampled]

    prompt = [token % 500 for token in range(3, 40)]
    first = step(prompt, 0, [[5, 6, 7]] * 2)
    second = step(first, 37, [[5, 6, 7]] * 2)
    again = [step(prompt, 0, [[9, 2, 3]] * 2), step(first, 37, [[9, 2, 3]] * 2)]
    assert again == [first, second]


def test_a_step_is_padded_to_the_smallest_recorded_one_that_holds_it() -> None:
    shapes = shapes_for(64, 1024)

    def held(rows: int, sequences: int, decodes: int) -> tuple[int, int] | None:
        found = holding(shapes, StepShape(rows, sequences, decodes, rows))
        return None if found is None else (found.decodes, found.rows - found.decodes)

    assert held(3, 3, 3) == (4, 0)
    assert held(300, 1, 0) == (0, 384)
    assert held(300, 9, 0) is None
    assert held(1025, 1, 0) is None  # no recorded step exceeds the context
    assert held(5 + 100, 7, 5) == (16, 128)
    assert held(64 + 512, 65, 64) == (64, 512)
    assert held(64 + 513, 65, 64) is None
    assert all(len(shapes_for(most, 1024)) == len(set(shapes_for(most, 1024))) for most in (1, 4, 64, 300))


def test_a_step_that_checks_drafts_is_a_recorded_step_of_single_tokens(
    model: GptOss, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many sequences have drafts: prompts are recorded for eight sequences at most."""
    replayed = []

    def replay(self: Recordings[StepShape], numbers: torch.Tensor, shape: StepShape) -> torch.Tensor:
        replayed.append(shape)
        return self._compute(numbers, shape)

    monkeypatch.setattr(Recordings, "replay", replay)
    runner = CudaRunner(model, [40] * len(model.config.windows), 10, 16, drafts=3)
    assert (runner.ahead, runner._graphs) == (0, None)
    runner = CudaRunner(model, [40] * len(model.config.windows), 10, 16, drafts=3, graphs=True)
    picker = runner.picker(SAMPLINGS[0])
    runner.launch([StepPart(slot, [1, 2, 3], 0, [[1 + slot]] * 2, 0, picker) for slot in range(10)])
    assert not replayed
    counts = [1 + slot % 4 for slot in range(10)]
    parts = [StepPart(at, [5, 6, 7, 8][:n], 3, [[1 + at]] * 2, n, picker) for at, n in enumerate(counts)]
    outcomes = runner.launch(parts).outcomes()
    assert replayed == [decode_shape(24)]  # 23 rows
    assert all(1 <= len(found.sampled) <= part.samples for found, part in zip(outcomes, parts, strict=True))


def test_preparing_a_runner_leaves_the_random_state_unchanged(model: GptOss) -> None:
    runner = CudaRunner(model, [40] * len(model.config.windows), 2, 16)
    before = random.getstate()
    runner.prepare()
    assert random.getstate() == before
