"""The recipe of draft heads: it computes as the engine does, and what it trains is right often."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from inference import tiny
from inference.config import ModelConfig, RopeConfig
from inference.drafting.loading import load_draft_head
from inference.models.gpt_oss import GptOss, HiddenStates, load_model
from inference.models.random_checkpoint import write_random_checkpoint
from recipe.drafting.export import write_head
from recipe.drafting.measure import measure
from recipe.drafting.network import HeadInTraining, HeadShape
from recipe.drafting.train import Course, usual_tokens
from tests.doubles.inference.plain_head import PlainHead

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> GptOss:
    config = ModelConfig(
        layers=3,
        hidden=32,
        intermediate=32,
        vocab_size=300,
        heads=4,
        kv_heads=2,
        head_dim=16,
        experts=2,
        experts_per_token=1,
        sliding_window=8,
        sliding_layers=(True, False, False),
        context_length=256,
        rope=RopeConfig(),
    )
    folder = write_random_checkpoint(tmp_path_factory.mktemp("model"), config, seed=2)
    return load_model(folder, device=CPU, any_vocabulary=True)


def test_training_computes_what_the_engine_computes(model: GptOss, tmp_path: Path) -> None:
    """Every round, against one pair after the other with the same tokens."""
    draw = torch.Generator().manual_seed(1)
    shape = HeadShape(hidden=32, states=(1, 2, 3), intermediate=24, heads=3, head_dim=8)
    embedding = model.embed(torch.arange(300)).clone()
    head = HeadInTraining(shape, embedding, torch.randn(50, 32, generator=draw), torch.ones(32))
    for parameter in head.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draw).mul(0.3).add(parameter.dim() == 1)
        parameter.data = parameter.data.bfloat16().float()
    ids = torch.arange(50) * 6
    write_head(tmp_path, head, ids, model.config)
    load_draft_head(str(tmp_path), model)
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    plain = PlainHead(config, load_file(tmp_path / "model.safetensors"), model)

    tokens = torch.randint(0, 300, (20,), generator=draw)
    asked = torch.tensor([3, 4, 5, 6, 11, 12, 13])
    cache, hidden = model.new_cache(), HiddenStates(shape.states)
    model.forward(tokens, torch.arange(20), cache.memory, cache.pages(20), hidden)
    features = head.features(torch.cat(hidden.found, 1).clone())
    rounds = head.rounds(tokens, features, asked, 3)
    assert [places.tolist() for places, _ in rounds] == [
        [3, 4, 5, 6, 11, 12, 13],
        [4, 5, 6, 12, 13],
        [5, 6, 13],
    ]
    true = plain.features(tokens)
    for turn, (places, logits) in enumerate(rounds):
        for place, row in zip(places.tolist(), logits, strict=True):
            pairs = [plain.pair(int(tokens[at]), true[at - 1]) for at in range(1, place - turn + 1)]
            for at in range(place - turn + 1, place + 1):
                pairs.append(plain.pair(int(tokens[at]), plain.output(pairs)))
            wanted = plain.tensors["lm_head.weight"] @ plain.normed(plain.output(pairs), "norm")
            torch.testing.assert_close(row.detach(), wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.training
async def test_a_head_of_the_embedded_model_is_right_often_after_a_few_steps(tmp_path: Path) -> None:
    """It takes a minute or two of one core. The engine's answers are compared with those without a head."""
    checkpoint = tiny.checkpoint()
    model = load_model(checkpoint, device=CPU)
    shape = HeadShape(hidden=model.config.hidden, states=(1, 4, 7))
    course = Course(checkpoint, model, shape, 3, usual_tokens(3, 2048, talks=200))
    losses = [course.step(step / 30)[0] for step in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    write_head(tmp_path, course.head, course.ids, model.config)
    sums = await measure(tmp_path, 2, 5)
    assert sums["none"].tokens == sums["eagle"].tokens > 100
    assert sums["eagle"].accepted > 0.1 * sums["eagle"].drafted
    assert sums["eagle"].steps < 0.9 * sums["none"].steps
