"""A grammar's mask restricts the local engine before any other sampling field.
Stop ids that may not be sampled yet, and the repetition penalty, on both samplers.
"""

import math
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.engine import EngineFailed, Finish, Sampling
from inference.local.cuda.picker import CudaPicker, pick_rows
from inference.local.engine import load_local
from inference.local.sampling.sampler import Masks, Sampler
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
        "import inference, inference.local.sampling.sampler; "
        "import gpt_oss_server.app, gpt_oss_server.constraints.binding"
    )
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0


SIZE = 64
STOPS = frozenset({3, 5})
Draw = Callable[[Sampling, Sequence[int], Tensor, int], list[int]]


def by_sampler(sampling: Sampling, prompt: Sequence[int], logits: Tensor, count: int) -> list[int]:
    sampler = Sampler(sampling, SIZE, prompt=prompt)
    return [sampler.sample(logits).token for _ in range(count)]


def by_picker(sampling: Sampling, prompt: Sequence[int], logits: Tensor, count: int) -> list[int]:
    picker = CudaPicker(sampling, SIZE, torch.device("cpu"), prompt)
    found = []
    for _ in range(count):
        mask = None if picker.masks is None else picker.masks.bits()
        token = pick_rows(logits.unsqueeze(0), [picker], picker.points(1), [mask])
        picker.used(1)
        picker.count(token)
        found.append(int(token))
        if picker.masks is not None:
            picker.masks.accept(found[-1])
    return found


BOTH = pytest.mark.parametrize("draw", [by_sampler, by_picker])


def rising() -> Tensor:
    """The likeliest tokens are the stop ids 5 and 3, then 9."""
    logits = torch.zeros(SIZE)
    logits[[5, 3, 9]] = torch.tensor([4.0, 3.0, 2.0])
    return logits


CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "only after the least tokens": ({"min_tokens": 4}, [9, 9, 9, 9, 5, 5]),
    "a bias holds once it may be sampled": ({"min_tokens": 2, "logit_bias": {5: -3.0}}, [9, 9, 3]),
    "an ignored one never": ({"min_tokens": 1, "ignored_stop_ids": frozenset({5})}, [9, 3, 3]),
    "a grammar is narrowed": ({"min_tokens": 2, "grammar": Recorded([{5, 9, 20}])}, [9, 9, 5]),
    "but never to nothing": ({"min_tokens": 9, "grammar": Recorded([{3, 5}])}, [5]),
    # 9 falls to 0.5, then 5 to 2.5 and 3 to 1.5.
    "penalties go on after the ban": ({"min_tokens": 1, "presence_penalty": 1.5}, [9, 5, 3, 5]),
}


@BOTH
@pytest.mark.parametrize(("fields", "tokens"), CASES.values(), ids=CASES)
def test_a_stop_id_is_sampled_where_it_may_be(draw: Draw, fields: dict[str, Any], tokens: list[int]) -> None:
    sampling = Sampling(temperature=0.0, stop_token_ids=STOPS, **fields)
    assert draw(sampling, [1], rising(), len(tokens)) == tokens


@BOTH
@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_a_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones(
    draw: Draw, penalty: float
) -> None:
    logits = torch.randn(SIZE, generator=torch.Generator().manual_seed(7))
    seen, wanted = {2, 40, int(logits.argmax())}, []
    for _ in range(12):
        changed = [
            (value / penalty if value > 0 else value * penalty) if token in seen else value
            for token, value in enumerate(logits.tolist())
        ]
        wanted.append(max(range(SIZE), key=lambda token: changed[token]))
        seen.add(wanted[-1])
    before = logits.clone()
    sampling = Sampling(temperature=0.0, repetition_penalty=penalty)
    assert draw(sampling, [2, 40, int(logits.argmax())], logits, 12) == wanted
    assert torch.equal(logits, before), "the logits of a log-probability stay the model's own"
