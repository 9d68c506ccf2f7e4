"""A draft head whose model and layer run kernels guesses as in plain ops: whole steps."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inference.drafting.loading import load_draft_head
from inference.local.cuda.runner import CudaRunner
from inference.models.gpt_oss import GptOss
from inference.models.random_weights import random_model
from inference.ops import fused, fused_sampling
from inference.shapes import SHAPES
from tests.doubles.inference.alone import alone
from tests.doubles.inference.heads import changed_layer, speculators_config, write_head
from tests.doubles.inference.walking import EACH, Answer, answers

CONFIG = replace(SHAPES["tiny"], vocab_size=300)
MOST, SIZE = 2, 8
PROMPTS = [[token * 37 % 300 for token in range(9)], [7]]


def answered(model: GptOss, folder: Path, texts: list[list[int]]) -> list[list[Answer]]:
    head = load_draft_head(str(folder), model)
    blocks = [1 + 2 * EACH] * len(CONFIG.windows)
    runner = CudaRunner(model, blocks, 2, SIZE, drafts=MOST, head=head)
    return answers(runner, PROMPTS, texts, 3, MOST)


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
    for place in ("ops.halves", "models.head"):  # kernels take plain weights
        monkeypatch.setattr(f"inference.{place}.has_halves", lambda device: False)
    monkeypatch.setattr("inference.models.weights.runs_kernels", lambda device: True)
    monkeypatch.setattr("inference.drafting.loading.runs_kernels", lambda device: True)
    for room in ("models.gpt_oss", "drafting.head"):
        monkeypatch.setattr(f"inference.{room}.ops_for", lambda device: fused)
    monkeypatch.setattr("inference.local.cuda.picker.sampling_for", lambda device: fused_sampling)
    model = random_model(CONFIG, device, progress=False)
    assert isinstance(model._weights.head, torch.Tensor)
    rows = model._weights.head.t().contiguous()  # as it lies on a GPU
    model._weights = replace(model._weights, head=rows.t())
    found = answered(model, folder, texts)
    assert found == wanted
    assert all(len(sampled) == 2 for step in wanted[1:] for sampled, _ in step)
    assert all(len(guesses) == MOST for step in wanted for _, guesses in step)
    assert len({tuple(guesses) for step in wanted for _, guesses in step}) > 2
