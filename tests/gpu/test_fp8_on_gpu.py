"""FP8 weights, keys and values on a card, at the size of the 20b model."""

import pytest
import torch

from inference.models.random_weights import random_model
from inference.options import Precision
from inference.shapes import SHAPES
from tests.doubles.inference.full_size import PRODUCTS, attention_error, product_error

pytestmark = pytest.mark.gpu


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
    assert other.rounding is not None
    assert 0.02 < other.rounding < 0.03
    tokens = [token * 37 % 2000 for token in range(150)]
    found, wanted = (model.all_logits(tokens, model.new_cache()).double() for model in (other, plain))
    assert 0.005 < float((found - wanted).norm() / wanted.norm()) < 0.2
    steps = other.new_cache()
    other.extend(tokens[:-2], steps)
    for at in (-2, -1):
        one = other.next_logits([tokens[at]], steps).double()
        assert float((one - found[at]).norm() / found[at].norm()) < 0.05
