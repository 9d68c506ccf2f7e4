"""A whole model that stores FP8 and runs kernels, against the same model in plain ops on a CPU."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from inference.models.gpt_oss import GptOss
from inference.models.random_weights import RandomTensors, random_model
from inference.models.weights import load_weights
from inference.ops import fused
from inference.ops.scaled import FP8, ScaledRows
from inference.options import Precision
from inference.shapes import SHAPES
from tests.doubles.inference.drawn import relative_error

CONFIG = replace(SHAPES["tiny"], vocab_size=300)
TOKENS = [token * 37 % 300 for token in range(7)]


class OnCpu(RandomTensors):
    """Drawn on the device of the kernels, for the plain ops: a generator's numbers depend on its device."""

    def take(self, name, shape, *, bytes_only=False):  # type: ignore[no-untyped-def]
        return super().take(name, shape, bytes_only=bytes_only).cpu()


@pytest.mark.parametrize("kv", ["auto", pytest.param("fp8", marks=pytest.mark.proof)])
def test_logits_equal_those_of_the_plain_ops(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, kv: str
) -> None:
    precision = Precision(weights="fp8", kv=kv)
    form: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32, "precision": precision}
    plain = GptOss(CONFIG, load_weights(OnCpu(device), CONFIG, **form), precision)
    if device.type == "cpu":
        for place in ("inference.models.weights.runs_kernels", "inference.models.weights.runs_fp8"):
            monkeypatch.setattr(place, lambda device: True)
        monkeypatch.setattr("inference.models.gpt_oss.ops_for", lambda device: fused)
    model = random_model(CONFIG, device, precision=precision, progress=False)
    assert isinstance(model._weights.head, ScaledRows)
    products = [part for layer in model._weights.layers for part in (layer.qkv, layer.out)]
    assert all(isinstance(part, ScaledRows) for part in products)
    assert model.rounding == pytest.approx(plain.rounding, rel=1e-3)
    cache, other = model.new_cache(), plain.new_cache()
    assert (cache.memory.layers[0][0].dtype == FP8) == (kv == "fp8")
    for part in (TOKENS[:6], TOKENS[6:]):
        found, wanted = model.all_logits(part, cache), plain.all_logits(part, other)
        # A key rounded the other way, or bf16, can change a token's experts: most tokens must agree closely.
        errors = sorted(relative_error(own, right) for own, right in zip(found.cpu(), wanted, strict=True))
        bound = 1e-4 if device.type == "cpu" and kv == "auto" else 0.02
        assert errors[len(errors) // 2] < bound, errors
