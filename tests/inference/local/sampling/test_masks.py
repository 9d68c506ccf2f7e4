"""A grammar's mask restricts the local engine before any other sampling field."""

import math
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from inference.engine import EngineFailed, Finish, Sampling
from inference.local.engine import load_local
from inference.local.sampling.masks import Masks
from inference.local.sampling.sampler import Sampler
from inference.options import EngineOptions
from tests.contracts.engine_contract import generated
from tests.doubles.engines.written import Recorded

CPU = torch.device("cpu")


@pytest.mark.parametrize("vocabulary", [10, 64, 100])
def test_a_row_is_zero_where_the_bit_is_set_and_forbids_the_rest(vocabulary: int) -> None:
    row = Masks(Recorded([{0, 9, 63}])).row(vocabulary, CPU).tolist()
    assert row == [0.0 if token in (0, 9, 63) else -math.inf for token in range(vocabulary)]


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
    {"temperature": 0.0, "presence_penalty": -2.0, "frequency_penalty": -2.0},
    {"temperature": 1.0},
    {"temperature": 2.0, "top_p": 0.5, "min_p": 0.2},
    {"temperature": 1.0, "top_k": 3, "logit_bias": {5: 100.0}},
]


@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_any_sampling_picks_only_allowed_tokens(fields: dict[str, float]) -> None:
    logits = torch.randn(64, generator=torch.Generator().manual_seed(1)) * 5
    grammar = Recorded([{2, 3}, {40}, {7, 8, 9, 63}])
    sampler = Sampler(Sampling(seed=1, grammar=grammar, **fields), 64)  # type: ignore[arg-type]
    tokens = [sampler.sample(logits).token for _ in range(20)]
    assert all(token in grammar.sets[min(at, 2)] for at, token in enumerate(tokens))
    assert grammar.accepted == tokens


def test_a_continued_generation_begins_within_its_grammar() -> None:
    grammar = Recorded([{2}, {40}, {7}])
    sampler = Sampler(Sampling(grammar=grammar, continued=(2, 40)), 64)
    assert sampler.sample(torch.zeros(64)).token == 7
    assert grammar.accepted == [2, 40, 7]


def test_distribution_and_log_probabilities_are_the_models_own_among_allowed_tokens() -> None:
    logits = torch.zeros(64)
    logits[1], logits[2] = math.log(3.0), 9.0
    sampler = Sampler(Sampling(seed=1, logprobs=1, grammar=Recorded([{0, 1}])), 64)
    sampled = [sampler.sample(logits) for _ in range(2_000)]
    counts = Counter(each.token for each in sampled)
    assert set(counts) == {0, 1}
    assert counts[1] / 2_000 == pytest.approx(0.75, abs=0.04)
    scores = logits.log_softmax(0)
    assert all(each.logprob.logprob == pytest.approx(float(scores[each.token])) for each in sampled[:9])


async def test_an_engine_obeys_and_a_grammar_that_fails_ends_its_generation_alone(checkpoint: Path) -> None:
    engine = load_local(checkpoint, EngineOptions(device="cpu", context=64), name="x")
    assert engine.info.enforces_grammar
    for _ in range(2):
        sampling = Sampling(max_tokens=4, grammar=Recorded([{3}, {4}, {5}, {6}]), seed=1)
        found = await generated(engine, sampling)
        assert (found.tokens, found.finish) == ((3, 4, 5, 6), Finish.LENGTH)
        with pytest.raises(EngineFailed, match="allows no token"):
            await generated(engine, Sampling(grammar=Recorded([{3}, set()])))
    await engine.close()


def test_inference_needs_no_llguidance() -> None:
    check = (
        "import sys; sys.modules['llguidance'] = None; "
        "import inference, inference.local.sampling.masks; "
        "import gpt_oss_server.app, gpt_oss_server.constraints.binding"
    )
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
