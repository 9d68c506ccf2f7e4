"""Compiles every kernel for sm_90 as the 20b and the 120b model launch it, which needs no GPU.

These tests find spills and products outside the tensor cores before they reach a user's card. `make test`
compiles each kernel for the most rows, which take the most registers, and `make proofs` every launch.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
