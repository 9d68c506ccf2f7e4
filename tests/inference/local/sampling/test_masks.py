"""A grammar's mask restricts the local engine before any other sampling field."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from inference.engine import EngineFailed, Finish, Sampling
from inference.local.engine import LocalEngine, load_local
from inference.local.sampling.masks import Masks
from inference.local.sampling.sampler import Sampler
from inference.options import EngineOptions
from tests.doubles.engines.written import Recorded
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint

CPU = torch.device("cpu")


def test_a_row_is_zero_where_the_bit_is_set_and_forbids_the_rest() -> None:
    row = Masks(Recorded([{0, 9, 63}])).row(64, CPU)
    assert [i for i, value in enumerate(row.tolist()) if value == 0] == [0, 9, 63]
    assert row.sum() == -math.inf


@pytest.mark.parametrize("vocabulary", [10, 64, 100])
def test_a_mask_of_another_length_than_the_vocabulary(vocabulary: int) -> None:
    row = Masks(Recorded([{1, 9}])).row(vocabulary, CPU)
    assert len(row) == vocabulary
    assert [i for i, value in enumerate(row.tolist()) if value == 0] == [1, 9]


def test_a_mask_is_computed_on_a_thread_while_the_step_runs() -> None:
    threads: list[str] = []

    class OnThread(Recorded):
        def start(self) -> Recorded:
            return OnThread(self.sets)

        def mask(self) -> bytes:
            threads.append(threading.current_thread().name)
            return super().mask()

    with ThreadPoolExecutor(1, "worker") as workers:
        sampler = Sampler(Sampling(grammar=OnThread([{3}, {4}])), 64, workers)
        for wanted in (3, 4):
            sampler.prepare()
            sampler.prepare()  # the step is repeated
            assert sampler.sample(torch.zeros(64)).token == wanted
    assert [name.split("_")[0] for name in threads] == ["worker", "worker"]


def test_a_grammar_that_allows_nothing_is_an_error() -> None:
    with pytest.raises(EngineFailed, match="allows no token"):
        Masks(Recorded([set()])).row(64, CPU)


FIELDS = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 2.0, "top_p": 0.5},
    {"temperature": 1.0, "top_k": 3},
    {"temperature": 1.0, "min_p": 0.2},
    {"temperature": 1.0, "logit_bias": {5: 100.0}},
    {"temperature": 0.0, "presence_penalty": -2.0, "frequency_penalty": -2.0},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_any_sampling_picks_only_allowed_tokens(fields: dict[str, float]) -> None:
    logits = torch.randn(64, generator=torch.Generator().manual_seed(1)) * 5
    grammar = Recorded([{2, 3}, {40}, {7, 8, 9, 63}])
    sampler = Sampler(Sampling(seed=1, grammar=grammar, **fields), 64)  # type: ignore[arg-type]
    tokens = [sampler.sample(logits).token for _ in range(20)]
    assert tokens[0] in (2, 3)
    assert tokens[1] == 40
    assert set(tokens[2:]) <= {7, 8, 9, 63}
    assert grammar.accepted == tokens


def test_a_continued_generation_begins_within_its_grammar() -> None:
    grammar = Recorded([{2}, {40}, {7}])
    sampler = Sampler(Sampling(grammar=grammar, continued=(2, 40)), 64)
    assert sampler.sample(torch.zeros(64)).token == 7
    assert grammar.accepted == [2, 40, 7]


def test_the_distribution_is_the_models_own_among_allowed_tokens() -> None:
    logits = torch.zeros(64)
    logits[1], logits[2] = math.log(3.0), 9.0
    sampler = Sampler(Sampling(seed=1, grammar=Recorded([{0, 1}])), 64)
    counts = Counter(sampler.sample(logits).token for _ in range(2_000))
    assert set(counts) == {0, 1}
    assert counts[1] / 2_000 == pytest.approx(0.75, abs=0.04)


def test_log_probabilities_are_the_models_own() -> None:
    logits = torch.zeros(64)
    sampled = Sampler(Sampling(logprobs=1, grammar=Recorded([{5}])), 64).sample(logits)
    assert sampled.logprob is not None
    assert sampled.logprob.logprob == pytest.approx(-math.log(64))


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("smallest"), SMALLEST, seed=5)


@pytest.fixture
async def engine(weights: Path) -> AsyncIterator[LocalEngine]:
    engine = load_local(weights, EngineOptions(context=64), name="x")
    yield engine
    await engine.close()


async def test_an_engine_obeys_and_each_generation_has_a_state_of_its_own(engine: LocalEngine) -> None:
    for _ in range(2):
        sampling = Sampling(max_tokens=4, grammar=Recorded([{3}, {4}, {5}, {6}]), seed=1)
        steps = [step async for step in engine.generate([1, 2], sampling)]
        assert [token for step in steps for token in step.tokens] == [3, 4, 5, 6]
        assert steps[-1].finish is Finish.LENGTH


async def test_a_grammar_that_fails_ends_its_generation_alone(engine: LocalEngine) -> None:
    assert engine.info.enforces_grammar
    with pytest.raises(EngineFailed, match="allows no token"):
        async for _ in engine.generate([1, 2], Sampling(grammar=Recorded([{3}, set()]))):
            pass
    steps = [step async for step in engine.generate([1, 2], Sampling(max_tokens=1))]
    assert steps[-1].finish is not None


def test_inference_needs_no_llguidance() -> None:
    check = (
        "import sys; sys.modules['llguidance'] = None; "
        "import inference, inference.local.sampling.masks; "
        "import gpt_oss_server.app, gpt_oss_server.constraints.binding"
    )
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
