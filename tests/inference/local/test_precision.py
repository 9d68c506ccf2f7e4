"""FP8 weights, keys and values in the engine: where they are refused, the plan of memory, and tokens."""

from pathlib import Path

import pytest
import torch

import inference
from inference.bench import roofline
from inference.bench.divergence import divergence, sampled
from inference.bench.measure import stored_widths
from inference.config import SHAPES
from inference.engine import CheckpointError, EngineInfo, Sampling
from inference.local.cuda.runner import CudaRunner
from inference.local.engine import describe, load_local, start_engine
from inference.local.memory_plan import layer_kinds
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss, load_model
from inference.models.random_weights import random_model
from inference.ops.scaled import FP8
from inference.options import EngineOptions, Precision
from tests.contracts.engine_contract import generated
from tests.doubles.inference.driven import alone

CPU = torch.device("cpu")
BOTH = Precision(weights="fp8", kv="fp8")
GREEDY = Sampling(temperature=0.0, max_tokens=30, stop_token_ids=frozenset())
PROMPT = [at * 31 % 500 for at in range(40)]


@pytest.fixture(scope="module")
def fp8(checkpoint: Path) -> GptOss:
    return load_model(checkpoint, device=CPU, precision=BOTH)


@pytest.mark.parametrize(
    ("precision", "flags"),
    [
        (Precision(weights="fp8"), "--weights fp8 needs"),
        (Precision(kv="fp8"), "--kv-dtype fp8 needs"),
        (BOTH, "--weights fp8 and --kv-dtype fp8 needs"),
    ],
)
def test_without_kernels_fp8_is_refused_before_anything_is_loaded(
    checkpoint: Path, precision: Precision, flags: str
) -> None:
    options = EngineOptions(device="cpu", weights=precision.weights, kv_dtype=precision.kv)
    with pytest.raises(CheckpointError, match=flags):
        load_local(checkpoint, options, name="model")
    with pytest.raises(CheckpointError, match=flags):
        inference.load("random:tiny", options=options)


async def test_the_engine_samples_the_tokens_of_the_model_alone(fp8: GptOss, model: GptOss) -> None:
    for each in (fp8, model):
        info = EngineInfo(name="m", context_length=1024, vocab_size=500)
        engine = start_engine(each, info, EngineOptions())
        tokens = (await generated(engine, GREEDY, PROMPT)).tokens
        await engine.close()
        assert list(tokens) == alone(each, PROMPT, 30)


def test_the_runner_of_a_gpu_samples_the_same_tokens(fp8: GptOss) -> None:
    runner = CudaRunner(fp8, [20] * len(fp8.config.windows), 2, 16, graphs=False)
    picker = runner.picker(GREEDY)
    tables = [list(range(1, 8))] * len(fp8.config.windows)
    parts, found = StepPart(0, PROMPT, 0, tables, 1, picker), []
    for at in range(20):
        found.append(runner.launch([parts]).outcomes()[0].sampled[0].token)
        parts = StepPart(0, found[-1:], len(PROMPT) + at, tables, 1, picker)
    assert found == alone(fp8, PROMPT, 20)


def test_keys_and_values_take_a_byte_each(fp8: GptOss, model: GptOss) -> None:
    assert fp8.new_cache().memory.layers[0][0].dtype == FP8
    for own, other in zip(layer_kinds(fp8), layer_kinds(model), strict=True):
        assert own.bytes_per_token * 4 == other.bytes_per_token
    assert [each * 4 for each in fp8.new_cache().memory.block_bytes] == model.new_cache().memory.block_bytes


def test_the_description_states_what_is_in_fp8(fp8: GptOss, model: GptOss) -> None:
    assert "FP8" not in describe(model, "model").description
    stated = describe(fp8, "fp8").description
    assert f"error of the weights {fp8.rounding:.2%})" in stated
    assert stated.endswith(", keys and values in FP8.")


def test_the_divergence_is_zero_from_itself_and_small_from_fp8() -> None:
    plain, other = (
        random_model(SHAPES["tiny"], CPU, progress=False, precision=each) for each in (Precision(), BOTH)
    )
    none = divergence(plain, plain, 160)
    assert (none.mean, none.most, none.same_best) == (0, 0, 1)
    assert none.loss == none.other_loss
    some = divergence(plain, other, 160)
    assert some.tokens == 160
    assert 0 < some.mean < 0.1
    assert some.mean < some.p99 <= some.most
    assert 0.5 < some.same_best <= 1
    assert some.loss == none.loss
    assert sampled(plain, 2, 9) == sampled(plain, 2, 9)


def test_the_roofline_counts_fp8_only_where_it_is_stored(fp8: GptOss) -> None:
    config = SHAPES["20b"]
    whole = roofline.decode_bytes(config, 1, 1024, roofline.Widths(2, 2, 2))
    weights = roofline.decode_bytes(config, 1, 1024, roofline.Widths(2, 1, 2))
    attention = 24 * 2880 * 64 * (80 + 64)
    assert whole - weights == attention + 201_088 * 2880
    assert stored_widths(fp8) == roofline.Widths(4, 4, 1)  # on a CPU, the weights are the floats
