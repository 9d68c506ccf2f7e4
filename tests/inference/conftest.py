"""Small checkpoints with random weights, shared by all tests of inference."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.config import ModelConfig, RopeConfig
from inference.models.gpt_oss import GptOss, load_model
from tests.doubles.inference.random_checkpoint import write_random_checkpoint


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """With a busy neighbour, two OpenMP threads are slower than one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def _small_vocabularies_load() -> Iterator[None]:
    """Most models of these tests speak no Harmony."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("inference.config.check_vocabulary", lambda size: None)
        yield


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.remote.engine.PAUSE", 0.0)


@pytest.fixture(scope="session")
def config() -> ModelConfig:
    """Sliding and full layers, a window far shorter than the prompts, YaRN that takes effect within them."""
    sizes = {"hidden": 64, "intermediate": 96, "vocab_size": 500, "heads": 8, "kv_heads": 2, "head_dim": 16}
    sizes |= {"experts": 6, "experts_per_token": 3, "sliding_window": 16, "context_length": 1024}
    rope = RopeConfig(original_context=32, factor=32.0)
    return ModelConfig(layers=3, sliding_layers=(True, False, True), rope=rope, **sizes)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> Path:
    """Hugging Face layout, MXFP4."""
    return write_random_checkpoint(tmp_path_factory.mktemp("hf"), config, seed=3)


@pytest.fixture(scope="module")
def model(checkpoint: Path) -> GptOss:
    return load_model(checkpoint, device=torch.device("cpu"))


@pytest.fixture(scope="session")
def whole_vocabulary(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> Path:
    """A checkpoint that loads like a user's."""
    of_gpt_oss = replace(
        config, vocab_size=201_088, hidden=32, intermediate=32, layers=2, sliding_layers=(True, False)
    )
    return write_random_checkpoint(tmp_path_factory.mktemp("whole"), of_gpt_oss, seed=3)
