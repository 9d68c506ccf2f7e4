"""Every kernel as the 20b and the 120b model launch it is compiled for sm_90: no GPU is needed for that.

A spill, or a product that is not done by the tensor cores, is seen here and not first on a user's card.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# The warp-group products of Hopper; of few rows, or where each warp has columns of its own, the older kind.
WARP_GROUPS = {"experts.gate_up", "experts.down", "attention_prefill.prefill"}
PRODUCTS = {"dense.project", "dense.qkv", "attention_decode.decode"}
SHARED_MEMORY = 227 * 1024


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """In a process of its own, since kernels of this one may be interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.doubles.inference.launches"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def named(found: dict[str, Any]) -> str:
    return f"{found['kernel']} {found['constants']}"


def test_no_kernel_spills_registers(compiled: list[dict[str, Any]]) -> None:
    assert not [named(found) for found in compiled if found["counts"].keys() & {"LDL", "STL"}]


def test_no_kernel_needs_more_shared_memory_than_there_is(compiled: list[dict[str, Any]]) -> None:
    assert not [named(found) for found in compiled if found["shared"] > SHARED_MEMORY]


def test_products_are_done_by_the_tensor_cores(compiled: list[dict[str, Any]]) -> None:
    for found in compiled:
        if found["kernel"] in WARP_GROUPS and not found["constants"].get("SHARERS"):
            assert "HGMMA" in found["counts"], named(found)
        elif found["kernel"] in WARP_GROUPS | PRODUCTS:
            assert found["counts"].keys() & {"HMMA", "HGMMA"}, named(found)
    assert {found["kernel"] for found in compiled} >= WARP_GROUPS | PRODUCTS


def test_unpacked_weights_stay_in_their_registers(compiled: list[dict[str, Any]]) -> None:
    """The packed layout is that of the operand: were it not, values would go from lane to lane, in shuffles
    or through shared memory."""
    experts = [found for found in compiled if found["kernel"].startswith("experts.")]
    assert experts
    for found in experts:
        assert "HMUL2" in found["loop"], named(found)
        assert not found["loop"].keys() & {"SHFL", "STS"}, named(found)


def test_experts_of_few_tokens_unpack_a_weight_in_few_instructions(compiled: list[dict[str, Any]]) -> None:
    """Of a lane's 32 weights of a fragment: memory leaves time for 3.7 instructions a weight (H200)."""
    few = [
        found for found in compiled if found["constants"].get("SHARERS") and "UNROLL" in found["constants"]
    ]
    assert few
    for found in few:
        weights = 32 * found["constants"]["FRAGMENTS"] * found["constants"]["UNROLL"]
        counts = found["loop"]
        assert counts["LOP3"] + counts["SHF"] + counts["HMUL2"] < 2.4 * weights, named(found)
        assert sum(counts.values()) < 5 * weights, named(found)
