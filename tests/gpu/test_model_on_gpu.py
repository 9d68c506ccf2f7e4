"""Whole steps on a card: recorded against unrecorded, kernels against plain ops, FP8, and a lost device."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inference.config import SHAPES
from inference.engine import Sampling
from inference.local.cuda.runner import CudaRunner
from inference.local.scheduling.step import PENDING, StepPart
from inference.models.gpt_oss import GptOss
from inference.models.random_weights import random_model
from inference.ops.device import device_problem
from inference.options import Precision
from tests.doubles.inference.full_size import PRODUCTS, attention_error, product_error

pytestmark = pytest.mark.gpu

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def model(card: torch.device) -> GptOss:
    return random_model(SHAPES["tiny"], card)


def decoded(model: GptOss, batch: int, steps: int, *, graphs: bool, ahead: bool) -> list[list[int]]:
    """Runs prompts of different lengths, then `steps` steps; with `ahead` the host reads one step late."""
    torch.manual_seed(0)
    runner = CudaRunner(model, [200] * len(model.config.windows), batch, graphs=graphs)
    draw = random.Random(5)
    prompts = [[draw.randrange(2000) for _ in range(draw.randrange(1, 300))] for _ in range(batch)]
    tables = [[list(range(1 + at * 6, 7 + at * 6))] * len(model.config.windows) for at in range(batch)]
    pickers = [runner.picker(GREEDY) for _ in range(batch)]
    parts = [StepPart(at, prompts[at], 0, tables[at], 1, pickers[at]) for at in range(batch)]
    order = sorted(range(batch), key=lambda at: len(prompts[at]))
    found = runner.launch([parts[at] for at in order]).outcomes()
    tokens = [[found[order.index(at)].sampled[0].token] for at in range(batch)]
    flights = []
    for step in range(steps + ahead):
        if step < steps:
            newest = [[PENDING if ahead and step else each[-1]] for each in tokens]
            ends = [len(prompt) + step for prompt in prompts]
            parts = [StepPart(at, newest[at], ends[at], tables[at], 1, pickers[at]) for at in range(batch)]
            flights.append(runner.launch(parts))
        if len(flights) > ahead or step >= steps:
            for own, outcome in zip(tokens, flights.pop(0).outcomes(), strict=True):
                own.append(outcome.sampled[0].token)
    return tokens


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 24])
def test_recorded_steps_sample_the_same_tokens_as_unrecorded_ones(model: GptOss, batch: int) -> None:
    plain = decoded(model, batch, 20, graphs=False, ahead=False)
    assert decoded(model, batch, 20, graphs=True, ahead=True) == plain


def test_the_same_batch_gives_the_same_tokens_twice(model: GptOss) -> None:
    assert decoded(model, 8, 20, graphs=True, ahead=True) == decoded(model, 8, 20, graphs=True, ahead=True)


def test_a_step_padded_to_a_recorded_one_samples_valid_tokens(model: GptOss) -> None:
    found = decoded(model, 5, 12, graphs=True, ahead=True)
    assert len({tuple(each) for each in found}) == 5
    assert all(0 <= token < 2048 for each in found for token in each)


def test_logits_equal_those_of_the_plain_ops(model: GptOss, card: torch.device) -> None:
    """Compares with the whole model on the CPU in float32, with the same weights."""
    tokens = [token * 37 % 2000 for token in range(150)]
    found = model.all_logits(tokens, model.new_cache()).cpu().double()
    oracle = random_model_on_cpu(card)
    wanted = oracle.all_logits(tokens, oracle.new_cache()).double()
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    steps = model.new_cache()
    model.all_logits(tokens[:-3], steps)
    for at in (-3, -2, -1):
        one = model.all_logits([tokens[at]], steps)[-1].cpu().double()
        assert float((one - wanted[at]).norm() / wanted[at].norm()) < 0.05


def random_model_on_cpu(card: torch.device) -> GptOss:
    """Draws the weights on the card, because a generator's numbers depend on its device."""
    from inference.models.weights import load_weights
    from tests.inference.ops.test_whole_steps import OnCpu

    config = SHAPES["tiny"]
    weights = load_weights(OnCpu(card), config, device=torch.device("cpu"), dtype=torch.float32)
    return GptOss(config, weights)


@pytest.mark.parametrize("tokens", [1, 2, 7, 16, 64, 200, 1500])
@pytest.mark.parametrize("experts", [32, 128])
def test_experts_of_full_size_equal_the_reference(card: torch.device, tokens: int, experts: int) -> None:
    # Imported here: on import, tests/inference/ops decides whether kernels are interpreted.
    from inference.ops.expert_kernels import Mixture
    from inference.ops.packing import repack
    from tests.doubles.inference.drawn import Draw, mxfp4_experts, relative_error

    draw, hidden = Draw(tokens, card), 2880
    generator = torch.Generator(card).manual_seed(tokens)

    def weights(rows: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        size = (experts, rows, hidden // 32)
        blocks = torch.randint(0, 256, (*size, 16), generator=generator, device=card, dtype=torch.uint8)
        scales = torch.randint(118, 122, size, generator=generator, device=card, dtype=torch.uint8)
        return blocks, scales, draw.rows(experts, rows)

    (*first, bias), (*second, second_bias) = weights(2 * hidden), weights(hidden)
    packed, second_packed = repack(*first, paired=True), repack(*second, paired=False)
    mixture = Mixture(packed, bias, second_packed, second_bias, limit=7.0, alpha=1.702)
    x = draw.rows(tokens, hidden)
    chosen, shares = draw.choices(tokens, experts, 4)
    found = mixture.forward(x, chosen, shares)
    floats = (*first, bias.float()), (*second, second_bias.float())
    wanted = mxfp4_experts(x.float(), chosen, shares, *floats, 7.0, 1.702)
    assert relative_error(found, wanted) < 1e-2
    assert torch.equal(found, mixture.forward(x, chosen, shares))


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("queries", [[1], [1] * 17, [900], [1, 1, 1, 77, 300]], ids=str)
def test_attention_of_full_size_equals_the_reference(
    card: torch.device, queries: list[int], window: int | None
) -> None:
    from tests.doubles.inference.drawn import Draw, random_pages, relative_error
    from tests.inference.ops.test_products import attended

    draw = Draw(len(queries), card)
    found, wanted = attended(draw, random_pages(draw, queries, window, 64, past=3000), 64, 8, 64)
    assert relative_error(found, wanted) < 1e-2


@pytest.fixture(scope="module")
def fp8_card(card: torch.device) -> torch.device:
    from inference.ops.device import runs_fp8

    if not runs_fp8(card):
        pytest.skip("this card has no FP8")
    return card


@pytest.mark.parametrize("tokens", [1, 2, 3, 16, 17, 33, 64, 128, 300])
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_equal_the_reference(fp8_card: torch.device, product: str, tokens: int) -> None:
    assert product_error(product, tokens, fp8_card) < 1e-2


@pytest.mark.parametrize("window", [None, 128])
@pytest.mark.parametrize("queries", [[1], [1] * 17, [900], [1, 1, 1, 77, 300]], ids=str)
def test_attention_over_fp8_equals_the_reference(
    fp8_card: torch.device, queries: list[int], window: int | None
) -> None:
    assert attention_error(queries, window, fp8_card) < 1e-2


@pytest.mark.parametrize("kv", ["auto", "fp8"])
def test_a_model_in_fp8_is_near_itself_in_bf16(fp8_card: torch.device, kv: str) -> None:
    plain = random_model(SHAPES["tiny"], fp8_card)
    other = random_model(SHAPES["tiny"], fp8_card, precision=Precision(weights="fp8", kv=kv))
    assert 0.02 < other.rounding < 0.03
    tokens = [token * 37 % 2000 for token in range(150)]
    found, wanted = (model.all_logits(tokens, model.new_cache()).double() for model in (other, plain))
    assert 0.005 < float((found - wanted).norm() / wanted.norm()) < 0.2
    steps = other.new_cache()
    other.all_logits(tokens[:-2], steps)
    for at in (-2, -1):
        one = other.all_logits([tokens[at]], steps)[-1].double()
        assert float((one - found[at]).norm() / found[at].norm()) < 0.05


ROOT = Path(__file__).resolve().parents[2]
# In a process of its own, whose context on the device is lost.
LOSE = """
import torch
from inference.ops.device import device_problem
device = torch.device("cuda")
assert device_problem(device) is None
try:
    torch.zeros(4, device=device)[torch.tensor([9], device=device)].cpu()
except RuntimeError:
    pass
print(device_problem(device))
"""


def test_a_card_is_sound_even_without_free_memory(card: torch.device) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 45, device=card)
    assert device_problem(card) is None


def test_a_lost_context_is_a_sentence(card: torch.device) -> None:
    done = subprocess.run([sys.executable, "-c", LOSE], cwd=ROOT, capture_output=True, text=True)
    assert "computes nothing any more" in done.stdout, done.stderr
