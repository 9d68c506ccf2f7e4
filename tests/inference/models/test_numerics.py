"""The model, compared with transformers, and with itself in other layouts and in other steps."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.models.gpt_oss import GptOss, load_model
from inference.models.weights import pack_head
from inference.ops.rope import FIRST_POSITIONS, Rotations, rope_tables
from tests.doubles.inference.drawn import relative_error
from tests.doubles.inference.random_checkpoint import write_random_checkpoint

# Many times longer than the window (16), and longer than the rope's original context (32).
PROMPT = torch.randint(0, 500, (70,), generator=torch.Generator().manual_seed(5)).tolist()
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def logits(model: GptOss) -> Tensor:
    return model.all_logits(PROMPT, model.new_cache())


@pytest.fixture(scope="module")
def outsider(checkpoint: Path) -> torch.nn.Module:
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers = pytest.importorskip("transformers")
    load = transformers.GptOssForCausalLM.from_pretrained
    return load(checkpoint, dtype=torch.float32, attn_implementation="eager").eval()


@torch.inference_mode()
def test_logits_are_those_of_transformers(outsider: torch.nn.Module, model: GptOss, logits: Tensor) -> None:
    wanted = outsider(torch.tensor([PROMPT])).logits[0]
    assert logits.std() > 0.3  # a model with nearly equal logits would prove nothing
    assert all(relative_error(row, other) < 1e-4 for row, other in zip(logits, wanted, strict=True))
    cache, past = model.new_cache(), None
    model.all_logits(PROMPT[:40], cache)
    past = outsider(torch.tensor([PROMPT[:40]]), use_cache=True).past_key_values
    for token in PROMPT[40:]:
        step = outsider(torch.tensor([[token]]), past_key_values=past, use_cache=True)
        past = step.past_key_values
        assert relative_error(model.all_logits([token], cache)[-1], step.logits[0, -1]) < 1e-4


@pytest.mark.parametrize("chunk", [1, 7, 16, 17, 33])
def test_a_prompt_in_chunks_gives_the_logits_of_the_whole(model: GptOss, logits: Tensor, chunk: int) -> None:
    cache = model.new_cache()
    parts = [model.all_logits(PROMPT[at : at + chunk], cache) for at in range(0, len(PROMPT), chunk)]
    assert relative_error(torch.cat(parts), logits) < 1e-5


LAYOUTS = [("", "original", "mxfp4", 1), ("", "original", "mxfp4", 3), ("", "original", "bf16", 1)]
LAYOUTS += [("", "hf", "mxfp4", 4), ("", "hf", "bf16", 2), ("original", "original", "mxfp4", 1)]


@pytest.mark.parametrize(("inner", "layout", "experts", "shards"), LAYOUTS)
def test_every_layout_of_the_same_weights_gives_the_same_logits(
    tmp_path: Path, config: ModelConfig, logits: Tensor, inner: str, layout: Any, experts: Any, shards: int
) -> None:
    folder = tmp_path / inner
    write_random_checkpoint(folder, config, seed=3, layout=layout, experts=experts, shards=shards)
    other = load_model(tmp_path, device=CPU)
    assert torch.equal(other.all_logits(PROMPT, other.new_cache()), logits)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("experts.KEPT_FLOAT_BYTES", 0), ("experts.DENSE_ROWS", 10_000), ("attention.MAX_SCORES", 3000)],
)
def test_other_ways_to_compute_give_the_same_logits(
    checkpoint: Path, logits: Tensor, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """Experts that are not kept as floats, all experts on all tokens, and long queries in parts."""
    room = "ops" if limit.startswith("attention") else "models"
    monkeypatch.setattr(f"inference.{room}.{limit}", value)
    other = load_model(checkpoint, device=CPU)
    assert relative_error(other.all_logits(PROMPT, other.new_cache()), logits) < 1e-5
    kept = any(layer.experts._kept for layer in other._weights.layers)
    assert kept != limit.endswith("BYTES")


@pytest.mark.parametrize("rows_at_once", [10_000, 1024])  # in one part, and in three
def test_a_packed_head_gives_the_logits_of_floats(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.ops.halves.ROWS_AT_ONCE", rows_at_once)
    draw = torch.Generator().manual_seed(1)
    stored = torch.randn(3000, 64, generator=draw).bfloat16()
    stored[0] *= 1e-6  # too small for half precision to hold exactly
    packed = pack_head(stored, torch.float32)
    if packed is None:
        pytest.skip("this PyTorch has no FBGEMM")
    for rows in (1, 2, 7, 40):
        x = torch.randn(rows, 64, generator=draw)
        wanted = x @ stored.float().t()
        assert relative_error(packed.product(x), wanted) < 1e-6
        assert (packed.product(x) - wanted).abs().max() < 1e-4


def test_rotations_are_made_as_sequences_grow_and_are_those_of_the_whole_table(config: ModelConfig) -> None:
    rotations = Rotations(config.rope, config.head_dim, 10_000, CPU)
    whole = rope_tables(config.rope, config.head_dim, 10_000)
    assert len(rotations._cos) == FIRST_POSITIONS
    for positions in ([0, 3, 17], [FIRST_POSITIONS - 1], [FIRST_POSITIONS], [9_999, 5]):
        places = torch.tensor(positions)
        for found, wanted in zip(rotations.at(places), whole, strict=True):
            assert torch.equal(found, wanted[places])
    assert len(rotations._cos) == 10_000
    with pytest.raises(IndexError):
        rotations.at(torch.tensor([10_000]))


@pytest.mark.parametrize(
    "stored", [torch.ones(8, 4), torch.full((8, 4), 1e6).bfloat16()], ids=["float32", "large"]
)
def test_a_head_that_would_lose_precision_is_not_packed(stored: Tensor) -> None:
    assert pack_head(stored, torch.float32) is None
    assert pack_head(torch.ones(8, 4).bfloat16(), torch.bfloat16) is None
