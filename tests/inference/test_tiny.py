"""The embedded model: its small file expands to the rows that its parts define; it is made once, whole."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from inference import tiny
from inference.config import ModelConfig
from inference.engine import CheckpointError, Sampling
from inference.local.checkpoint_defaults import generation_defaults
from inference.tiny import expand
from tests.doubles.inference.random_checkpoint import write_random_checkpoint


@pytest.fixture(scope="module")
def folder() -> Path:
    return tiny.checkpoint()


def fixed_part(table: expand.TokenTable, ids: expand.Ints) -> Tensor:
    """The input of both maps by its definition, for `ids`."""
    out = np.empty((len(ids), expand.MEANING.stop), dtype=np.float32)
    for slot, at in enumerate(expand.PIECES):
        out[:, at] = expand.id_codes(table.pieces[ids, slot])
    out[:, expand.OWN] = expand.own_codes(table, ids)
    out[:, expand.SPELLING] = expand.spelling_features(table.features[ids])
    for edge, at in enumerate(expand.EDGES):
        out[:, at] = expand.edge_codes(edge, table.edges[ids, edge])
    meanings = table.meanings[ids]
    out[:, expand.MEANING] = np.where(meanings[:, None] < 0, 0, table.vectors[meanings])
    return torch.from_numpy(out)


def test_it_is_an_ordinary_checkpoint_of_the_full_vocabulary(folder: Path) -> None:
    assert tiny.COMPACT.stat().st_size <= 16_000_000
    config = json.loads((folder / "config.json").read_text("utf-8"))
    assert config["architectures"] == ["GptOssForCausalLM"]
    assert config["vocab_size"] == expand.VOCABULARY
    assert config["max_position_embeddings"] >= 32_768
    assert config["quantization_config"]["quant_method"] == "mxfp4"
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        kinds = {str(file.get_slice(name).get_dtype()) for name in file.keys()}  # noqa: SIM118
        assert file.get_slice("lm_head.weight").get_shape() == [expand.VOCABULARY, config["hidden_size"]]
    assert kinds == {"BF16", "U8"}
    assert generation_defaults(folder) == Sampling(temperature=0.3, top_p=0.95)


@pytest.mark.proof  # ten seconds, for a file that is frozen
def test_expanding_it_again_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    expand.write_expanded(tmp_path)
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(("way", "name"), [("in", "model.embed_tokens"), ("out", "lm_head")])
@torch.inference_mode()
def test_expanded_rows_are_the_learned_row_and_the_mapped_fixed_part(
    folder: Path, way: str, name: str
) -> None:
    tensors = expand.read_compact(tiny.COMPACT)
    learned_ids, learned = tensors["learned.ids"].long(), expand.unpack_rows(f"learned.{way}", tensors)
    unlearned = torch.randint(0, expand.VOCABULARY, (500,), generator=torch.Generator().manual_seed(2))
    unlearned = unlearned[~torch.isin(unlearned, learned_ids)]
    ids = torch.cat([learned_ids[::100], unlearned])
    wanted = fixed_part(expand.unpack_table(tensors), ids.int().numpy()) @ tensors[f"map.{way}"].float()
    few = learned[::100]
    wanted[: len(few)] += F.pad(few, (0, wanted.shape[1] - few.shape[1]))
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        rows = file.get_tensor(f"{name}.weight")[ids].float()
    assert ((rows - wanted).norm(dim=1) < 0.01 * wanted.norm(dim=1)).all()


def test_codes_are_signs_and_differ() -> None:
    signs = expand.id_codes(np.arange(expand.VOCABULARY, dtype=np.int32))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert len(np.unique(signs, axis=0)) == expand.VOCABULARY
    assert not expand.id_codes(np.array([-1], dtype=np.int32)).any()


# In the cache ---------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: ModelConfig) -> Path:
    """A separate one, and a model that takes no time to write."""
    monkeypatch.setenv("GPT_OSS_SERVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(expand, "write_expanded", lambda folder: write_random_checkpoint(folder, config))
    return tmp_path / "cache"


@pytest.mark.parametrize("harm", ["none", "touched", "cut", "gone", "no manifest"])
def test_it_is_made_again_where_it_is_incomplete(cache: Path, harm: str) -> None:
    folder = tiny.checkpoint()
    weights = folder / "model.safetensors"
    made, content = weights.stat().st_ino, weights.read_bytes()
    harms: dict[str, Callable[[], object]] = {
        "touched": weights.touch,
        "cut": lambda: weights.write_bytes(content[:100]),
        "gone": weights.unlink,
        "no manifest": (folder / tiny.MANIFEST).unlink,
    }
    harms.get(harm, int)()
    assert tiny.checkpoint() == folder
    assert weights.read_bytes() == content
    if harm in ("none", "touched"):
        assert weights.stat().st_ino == made
    assert [path.name for path in cache.iterdir()] == [folder.name]


def disk_full(folder: Path) -> None:
    (folder / "half").write_text("x", encoding="utf-8")
    raise OSError("disk full")


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (disk_full, r"disk full\. Set GPT_OSS_SERVER_CACHE .* 300 MB of free space"),
        (lambda folder: save_file({}, folder / "no such folder" / "file"), "cannot be written to"),
    ],
    ids=["of the system", "of the weights' library"],
)
def test_a_failure_while_making_it_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None], sentence: str
) -> None:
    monkeypatch.setattr(expand, "write_expanded", write)
    with pytest.raises(CheckpointError, match=sentence):
        tiny.checkpoint()
    assert list(cache.iterdir()) == []


def test_unfinished_files_of_a_killed_process_are_removed(cache: Path) -> None:
    older, newer = cache / "tiny-1-abc.x1", cache / "tiny-1-abc.x2"
    for folder in (older, newer):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
    os.utime(older, (0, 0))
    made = tiny.checkpoint()
    assert {path.name for path in cache.iterdir()} == {made.name, newer.name}


def test_other_users_can_read_the_files(cache: Path) -> None:
    """An image that is built as root may run as another user."""
    before = os.umask(0o022)
    try:
        folder = tiny.checkpoint()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_the_cache_folder_follows_the_environment_and_its_error_names_the_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GPT_OSS_SERVER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert tiny.cache_folder() == Path("/somewhere/gpt-oss-server")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert tiny.cache_folder() == Path.home() / ".cache/gpt-oss-server"
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("Could not determine home directory.")))
    with pytest.raises(CheckpointError, match="Set GPT_OSS_SERVER_CACHE"):
        tiny.checkpoint()
    variable, unknown = "GPT_OSS_SERVER_CACHE", "~nobody-of-this-name/cache"
    for place, sentence in ((unknown, f"{variable}: {unknown} names no"), ("/dev/null/x", f"Set {variable}")):
        monkeypatch.setenv(variable, place)
        with pytest.raises(CheckpointError, match=sentence):
            tiny.checkpoint()
