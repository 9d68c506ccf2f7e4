"""Whole steps that run kernels, against plain ops: a model that stores FP8, and a draft head's guesses.
Compiles every kernel for sm_90 as the 20b and the 120b model launch it, which needs no GPU.

These tests find spills and products outside the tensor cores before they reach a user's card. `make test`
compiles each kernel for the most rows, which take the most registers, and `make proofs` every launch.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.config import SHAPES
from inference.drafting.loading import load_draft_head
from inference.local.cuda.runner import CudaRunner
from inference.models.gpt_oss import GptOss
from inference.models.random_weights import RandomTensors, random_model
from inference.models.weights import load_weights
from inference.ops import fused
from inference.ops.scaled import FP8, ScaledRows
from inference.options import Precision
from tests.doubles.inference.drawn import relative_error
from tests.doubles.inference.driven import alone
from tests.doubles.inference.heads import changed_layer, speculators_config, write_head
from tests.doubles.inference.walking import EACH, Answer, answers

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


MOST, SIZE = 2, 8
PROMPTS = [[token * 37 % 300 for token in range(9)], [7]]


def answered(model: GptOss, folder: Path, texts: list[list[int]]) -> list[list[Answer]]:
    head = load_draft_head(str(folder), model)
    blocks = [1 + 2 * EACH] * len(CONFIG.windows)
    runner = CudaRunner(model, blocks, 2, SIZE, drafts=MOST, head=head)
    return answers(runner, PROMPTS, texts, 3, MOST)


@pytest.mark.proof  # five seconds; tests/inference/drafting has guesses of plain ops
def test_guesses_of_kernels_equal_those_of_plain_ops(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if device.type != "cpu":
        pytest.skip("tests/gpu compares bf16 on a card; float32 is interpreted")
    monkeypatch.setattr(fused, "PROGRAMS", 8)  # few parts of keys: a program takes milliseconds here
    form: dict[str, Any] = {"norm_before_residual": False, "eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
    raw = speculators_config(CONFIG, draft_vocab=60, **form)
    folder = write_head(tmp_path, changed_layer(raw, head_dim=16, attention_bias=True))
    plain = random_model(CONFIG, device, progress=False)
    texts = [alone(plain, prompt, 10) for prompt in PROMPTS]
    wanted = answered(plain, folder, texts)
    for place in ("ops.halves", "models.weights"):  # kernels take plain weights
        monkeypatch.setattr(f"inference.{place}.has_halves", lambda device: False)
    monkeypatch.setattr("inference.models.weights.runs_kernels", lambda device: True)
    monkeypatch.setattr("inference.drafting.loading.runs_kernels", lambda device: True)
    for room in ("models.gpt_oss", "drafting.head", "local.cuda.picker"):
        monkeypatch.setattr(f"inference.{room}.ops_for", lambda device: fused)
    model = random_model(CONFIG, device, progress=False)
    assert isinstance(model._weights.head, torch.Tensor)
    rows = model._weights.head.t().contiguous()  # as it lies on a GPU
    model._weights = replace(model._weights, head=rows.t())
    found = answered(model, folder, texts)
    assert found == wanted
    assert all(len(sampled) == 2 for step in wanted[1:] for sampled, _ in step)
    assert all(len(guesses) == MOST for step in wanted for _, guesses in step)
    assert len({tuple(guesses) for step in wanted for _, guesses in step}) > 2


pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
# Kernels with Hopper's warp-group products; for few rows, or with warps that divide columns, the older kind.
WARP_GROUPS = {"experts.gate_up", "experts.down", "attention_prefill.prefill"}
PRODUCTS = {"dense.project", "dense.qkv", "scaled.project", "attention_decode.decode"}
SHARED_MEMORY = 227 * 1024


@pytest.fixture(scope="module", params=["the largest", pytest.param("all", marks=pytest.mark.proof)])
def compiled(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Runs in a separate process, because this one may interpret its kernels."""
    largest = ["--largest"] if request.param == "the largest" else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("TRITON_INTERPRET", None)
    program = [sys.executable, "-m", "tests.doubles.inference.launches", *largest]
    printed = subprocess.check_output(program, cwd=ROOT, env=environment, text=True)
    return [json.loads(line) for line in printed.splitlines()]


def named(found: dict[str, Any]) -> str:
    return f"{found['kernel']} {found['constants']}"


def test_no_kernel_spills_registers_or_exceeds_the_shared_memory(compiled: list[dict[str, Any]]) -> None:
    assert not [named(found) for found in compiled if found["counts"].keys() & {"LDL", "STL"}]
    assert not [named(found) for found in compiled if found["shared"] > SHARED_MEMORY]


def test_products_use_the_tensor_cores(compiled: list[dict[str, Any]]) -> None:
    for found in compiled:
        if found["kernel"] in WARP_GROUPS and not found["constants"].get("SHARERS"):
            assert "HGMMA" in found["counts"], named(found)
        elif found["kernel"] in WARP_GROUPS | PRODUCTS:
            assert found["counts"].keys() & {"HMMA", "HGMMA"}, named(found)
    assert {found["kernel"] for found in compiled} >= WARP_GROUPS | PRODUCTS


def test_fp8_weights_are_converted_by_fast_instructions_in_registers(compiled: list[dict[str, Any]]) -> None:
    """F2F, half precision to bf16, has a quarter of the rate of the others: less than memory needs. Converted
    weights do not pass through shared memory."""
    scaled = [found for found in compiled if found["kernel"].startswith("scaled.")]
    reading = scaled + [found for found in compiled if found["constants"].get("SCALED")]
    kernels = {"vector.qkv", "vector.project", "dense.qkv", "scaled.project"}
    assert {found["kernel"] for found in reading} >= kernels
    for found in reading:
        if found["kernel"] != "scaled.add_parts":
            assert "F2FP" in found["counts"], named(found)
            assert "F2F" not in found["counts"], named(found)
        assert found["kernel"] != "scaled.project" or "STS" not in found["loop"], named(found)


def test_unpacked_weights_stay_in_their_registers(compiled: list[dict[str, Any]]) -> None:
    """The packed layout is that of the operand; otherwise values would move between lanes, by shuffles or
    through shared memory."""
    experts = [found for found in compiled if found["kernel"].startswith("experts.")]
    assert experts
    for found in experts:
        assert "HMUL2" in found["loop"], named(found)
        assert not found["loop"].keys() & {"SHFL", "STS"}, named(found)


def test_experts_of_few_tokens_unpack_a_weight_in_few_instructions(compiled: list[dict[str, Any]]) -> None:
    """A lane has 32 weights of a fragment; memory leaves time for 3.7 instructions per weight (H200)."""
    few = [found for found in compiled if {"SHARERS", "UNROLL"} <= found["constants"].keys()]
    few = [found for found in few if found["constants"]["SHARERS"]]
    assert few
    for found in few:
        counts, weights = found["loop"], 32 * found["constants"]["FRAGMENTS"] * found["constants"]["UNROLL"]
        assert counts["LOP3"] + counts["SHF"] + counts["HMUL2"] < 2.4 * weights, named(found)
        assert sum(counts.values()) < 5 * weights, named(found)
