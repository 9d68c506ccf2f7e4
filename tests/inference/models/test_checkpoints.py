"""Checkpoints that do not fit: the error names the file, the tensor, both shapes, and a remedy."""

import json
import math
import os
import pty
import re
import shutil
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference import progress
from inference.config import ModelConfig
from inference.engine import CheckpointError
from inference.models.gpt_oss import load_model
from inference.progress import ProgressBar
from tests.doubles.inference.random_checkpoint import write_random_checkpoint

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "model"))


def error_of(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_model(folder, device=CPU)
    return str(caught.value)


LAYER = "model.layers.1.self_attn.k_proj.weight"
SINKS = "model.layers.2.self_attn.sinks"
SCALES = "model.layers.0.mlp.experts.down_proj_scales"
TENSORS: list[tuple[str, torch.Tensor | None, str]] = [
    (LAYER, torch.zeros(31, 64), f"model.safetensors|{LAYER}|31×64|32×64"),
    (SINKS, None, f"'{SINKS}' is missing|download it again"),
    (SCALES, torch.zeros(6, 64, 3), f"{SCALES}|F32|U8"),
]
CONFIGS: list[tuple[dict[str, object], str]] = [
    ({"intermediate_size": 128}, "mlp.experts.gate_up_proj_bias|6×192|6×256|different models"),
    ({"num_hidden_layers": 5, "layer_types": ["full_attention"] * 5}, "model.layers.3."),
]


@pytest.mark.parametrize(("name", "tensor", "parts"), TENSORS)
def test_a_tensor_that_does_not_fit_or_is_missing_is_named(
    folder: Path, name: str, tensor: torch.Tensor | None, parts: str
) -> None:
    tensors = {key: value.clone() for key, value in load_file(folder / "model.safetensors").items()}
    del tensors[name]
    save_file(tensors | ({} if tensor is None else {name: tensor}), folder / "model.safetensors")
    message = error_of(folder)
    assert all(part in message for part in parts.split("|"))


@pytest.mark.parametrize(("changes", "parts"), CONFIGS)
def test_a_config_of_another_model_is_reported(folder: Path, changes: dict[str, object], parts: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | changes), encoding="utf-8")
    message = error_of(folder)
    assert all(part in message for part in parts.split("|"))


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935\nsize 4792272488\n"


@pytest.mark.parametrize(
    ("content", "words"), [(None, "interrupted download"), (POINTER, "git lfs pull")], ids=["cut", "pointer"]
)
def test_a_file_without_its_tensors_is_named(folder: Path, content: bytes | None, words: str) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000] if content is None else content)
    message = error_of(folder)
    assert "model.safetensors" in message
    assert words in message


def test_a_missing_shard_and_a_broken_index_are_named(tmp_path: Path, config: ModelConfig) -> None:
    write_random_checkpoint(tmp_path, config, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert "model-00002-of-00003.safetensors is missing" in error_of(tmp_path)
    for index in ("{", "{}", "[]", '{"weight_map": 3}'):
        (tmp_path / "model.safetensors.index.json").write_text(index, encoding="utf-8")
        assert "model.safetensors.index.json" in error_of(tmp_path)


def test_what_a_folder_lacks_or_holds_instead_is_named(tmp_path: Path, checkpoint: Path) -> None:
    assert "no checkpoint" in error_of(tmp_path)
    shutil.copy(checkpoint / "config.json", tmp_path)
    assert "no .safetensors file" in error_of(tmp_path)
    save_file({"transformer.wte.weight": torch.zeros(3, 3)}, tmp_path / "model.safetensors")
    assert "holds no gpt-oss model" in error_of(tmp_path)


def test_mxfp4_needs_sizes_of_whole_blocks(tmp_path: Path, config: ModelConfig) -> None:
    odd = replace(config, intermediate=48)
    with pytest.raises(CheckpointError, match=r"blocks of 32, but intermediate_size is 48"):
        write_random_checkpoint(tmp_path, odd)


@pytest.mark.parametrize("columns", [30, 40, 60, 200])
def test_progress_fits_a_line_of_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_DRAWINGS", math.inf)  # drawn at its begin and its end
    controller, end = pty.openpty()
    termios.tcsetwinsize(end, (24, columns))
    with open(end, "w") as stream, ProgressBar("Loading weights", 2, stream=stream) as bar:
        bar.advance()
    drawn = ""
    while not drawn.endswith("\n"):
        drawn += os.read(controller, 4096).decode()
    os.close(controller)
    lines = re.split(r"[\r\n]+", drawn.strip())
    assert len(lines) == 2
    assert all(line.startswith("Loading weights") and len(line) < columns for line in lines)
    assert "[" not in drawn if columns == 30 else "]  50%" in drawn


@pytest.mark.parametrize("show", [True, False, None])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_drawn_on_terminals_and_on_request(
    checkpoint: Path, capsys: pytest.CaptureFixture[str], show: bool | None, is_terminal: bool
) -> None:
    sys.stderr.isatty = lambda: is_terminal  # type: ignore[method-assign]
    load_model(checkpoint, device=CPU, progress=show)
    drawn = capsys.readouterr().err
    assert ("Loading weights [##############################] 100%" in drawn) == (
        is_terminal if show is None else show
    )
