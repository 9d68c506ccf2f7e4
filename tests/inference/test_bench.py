"""The bench of steps: its arithmetic, its random weights, its rows."""

import pytest
import torch

from inference.bench import command, roofline
from inference.bench.machine import Machine
from inference.bench.measure import Workload
from inference.models.random_weights import random_model
from inference.shapes import SHAPES

CPU = torch.device("cpu")
BF16 = roofline.Widths(2, 2, 2)
MACHINE = Machine("a machine", "2", "3", "3.12", copy_bytes_per_s=1e9, product_flops_per_s=1e10)


def test_bytes_and_operations_are_those_of_the_published_models() -> None:
    """Batch 1, 1024 tokens of context: 3.736 and 5.045 GB, computed by hand from the published shapes."""
    assert roofline.decode_bytes(SHAPES["20b"], 1, 1024, BF16) == pytest.approx(3.736e9, rel=0.01)
    assert roofline.decode_bytes(SHAPES["120b"], 1, 1024, BF16) == pytest.approx(5.045e9, rel=0.01)
    per_token = roofline.prefill_flops(SHAPES["20b"], 1) - 2 * 201_088 * 2880
    assert per_token == pytest.approx(6.1e9, rel=0.02)


def test_more_tokens_need_more_experts_but_never_more_than_there_are() -> None:
    found = [roofline.expected_experts(SHAPES["20b"], tokens) for tokens in (1, 8, 64, 10_000)]
    assert found[0] == pytest.approx(4)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(32)


def test_random_weights_are_the_same_twice_and_keep_activations_alike() -> None:
    first, second = (random_model(SHAPES["tiny"], CPU, progress=False) for _ in range(2))
    tokens = list(range(3, 40))
    logits = [model.all_logits(tokens, model.new_cache()) for model in (first, second)]
    assert torch.equal(*logits)
    assert 0.1 < float(logits[0].std()) < 10


def test_rows_are_measured_for_every_case() -> None:
    workload = Workload(random_model(SHAPES["tiny"], CPU, progress=False), MACHINE, [1, 2], 2 * 160)
    decode, prefill = workload.decode(2, 20), workload.prefill(30)
    assert decode.tokens_per_s == pytest.approx(2 / (decode.ms / 1e3))
    assert prefill.tokens_per_s == pytest.approx(30 / (prefill.ms / 1e3))
    assert decode.fraction > 0
    assert prefill.fraction > 0


@pytest.mark.parametrize("given", ["", "0", "1,two", "1,,2", "-3"])
def test_what_is_no_number_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="must be numbers"):
        command._numbers(given)
