"""A draft head whose model and layer run kernels guesses as in plain ops: whole steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from inference.drafting.loading import load_draft_head
from inference.engine import Sampling
from inference.local.cuda.runner import CudaRunner
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss
from inference.models.random_weights import random_model
from inference.shapes import SHAPES
from tests.doubles.inference.alone import alone
from tests.doubles.inference.heads import changed_layer, speculators_config, write_head

CONFIG = replace(SHAPES["tiny"], vocab_size=300)
MOST, SIZE = 2, 8
PROMPTS = [[token * 37 % 300 for token in range(9)], [7]]
Answers = list[list[tuple[list[int], list[int]]]]


@dataclass
class Reader:
    """One sequence: its tokens so far, and those that follow."""

    tokens: list[int]
    later: list[int]
    computed: int = 0

    def part(self, runner: CudaRunner, slot: int) -> StepPart:
        drafts = [*self.later[:1], (self.later[1] + 1) % 300] if self.computed else []
        tokens = [*self.tokens[self.computed :], *drafts]
        table = [1 + 4 * slot, 2 + 4 * slot, 3 + 4 * slot]
        return StepPart(
            slot,
            tokens,
            self.computed,
            [table] * len(CONFIG.windows),
            1 + len(drafts),
            runner.picker(Sampling(temperature=0.0, stop_token_ids=frozenset())),
            guesses=MOST,
        )


def answers(model: GptOss, folder: Path, steps: int, texts: list[list[int]]) -> Answers:
    """Two sequences, and in each step one right draft and one wrong; `texts`: what follows the prompts."""
    head = load_draft_head(str(folder), model)
    runner = CudaRunner(model, [9] * len(CONFIG.windows), 2, SIZE, drafts=MOST, head=head)
    readers = [Reader(list(prompt), list(text)) for prompt, text in zip(PROMPTS, texts, strict=True)]
    found = Answers()
    for _ in range(steps):
        parts = [reader.part(runner, slot) for slot, reader in enumerate(readers)]
        outcomes = runner.launch(parts).outcomes()
        for reader, outcome in zip(readers, outcomes, strict=True):
            sampled = [each.token for each in outcome.sampled]
            reader.computed = len(reader.tokens) + len(sampled) - 1
            reader.tokens += sampled
            del reader.later[: len(sampled)]
        found.append([([each.token for each in o.sampled], list(o.guesses)) for o in outcomes])
    return found


def test_guesses_of_kernels_equal_those_of_plain_ops(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if device.type != "cpu":
        pytest.skip("tests/gpu compares bf16 on a card; float32 is interpreted")
    from inference.ops import fused, fused_sampling

    monkeypatch.setattr(fused, "PROGRAMS", 8)  # few parts of keys: a program takes milliseconds here
    raw = changed_layer(
        speculators_config(
            CONFIG, draft_vocab=60, norm_before_residual=False, eagle_aux_hidden_state_layer_ids=[0, 1, 2]
        ),
        head_dim=16,
        attention_bias=True,
    )
    folder = write_head(tmp_path, raw)
    plain = random_model(CONFIG, device, progress=False)
    texts = [alone(plain, prompt, 10) for prompt in PROMPTS]
    wanted = answers(plain, folder, 3, texts)
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
    found = answers(model, folder, 3, texts)
    assert found == wanted
    assert all(len(sampled) == 2 for step in wanted[1:] for sampled, _ in step)
    assert all(len(guesses) == MOST for step in wanted for _, guesses in step)
    assert len({tuple(guesses) for step in wanted for _, guesses in step}) > 2
