"""Repos of the hub: which files are downloaded, and the behaviour without a network, with the real client."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

import inference
from inference.backends import hub
from inference.engine import CheckpointError, ModelNotFound


def test_only_one_layout_of_a_repo_is_downloaded() -> None:
    names = [
        "README.md",
        "config.json",
        "generation_config.json",
        "metal/model.bin",
        "model-00000-of-00002.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "original/config.json",
        "original/model.safetensors",
        "tokenizer.json",
    ]
    needed = hub.files_needed(names)
    assert needed == [
        "config.json",
        "generation_config.json",
        "model-00000-of-00002.safetensors",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
    ]
    only_original = [name for name in names if name.startswith("original/") or name == "README.md"]
    assert hub.files_needed(only_original) == ["original/config.json", "original/model.safetensors"]
    assert hub.files_needed(["README.md"]) == []


class FakeHub:
    """A hub that is online."""

    def __init__(
        self,
        files: list[str],
        folder: Path | None = None,
        size: int = 1_000_000,
        config: dict[str, object] | None = None,
    ) -> None:
        self.files, self.folder, self.size, self.config = files, folder, size, config
        self.patterns: list[list[str]] = []

    def model_info(self, repo: str, *, timeout: float, files_metadata: bool) -> SimpleNamespace:
        size = self.size if files_metadata else None
        siblings = [SimpleNamespace(rfilename=name, size=size) for name in self.files]
        return SimpleNamespace(sha="a" * 40, siblings=siblings, config=self.config)

    def snapshot_download(self, repo: str, *, allow_patterns: list[str]) -> str:
        self.patterns.append(allow_patterns)
        if self.folder is None:
            raise KeyboardInterrupt
        return str(self.folder)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)


def test_a_repo_is_downloaded_and_served_under_its_name(
    whole_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeHub(["config.json", "model.safetensors", "README.md"], whole_vocabulary)
    fake.install(monkeypatch)
    assert inference.load("someone/some-gpt-oss", device="cpu").info.name == "some-gpt-oss"
    assert fake.patterns == [["config.json", "model.safetensors"]]


@pytest.mark.parametrize(
    ("files", "config", "sentence"),
    [
        (["config.json", "model.safetensors"], {"model_type": "llama"}, "another kind of model: llama"),
        (["gpt-oss-20b-mxfp4.gguf"], None, r"mxfp4\.gguf is a GGUF file"),
        (["config.json", "pytorch_model.bin"], None, "pickle format"),
    ],
)
def test_another_kind_of_model_is_refused_before_it_is_downloaded(
    files: list[str], config: dict[str, object] | None, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeHub(files, config=config)
    fake.install(monkeypatch)
    with pytest.raises(ModelNotFound, match=rf"{sentence}.*openai/gpt-oss-20b"):
        inference.load("someone/some-model")
    assert not fake.patterns


def test_a_repo_without_weights_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub(["README.md"]).install(monkeypatch)
    with pytest.raises(ModelNotFound, match=r"no \.safetensors weights"):
        hub.download("someone/model")


def test_the_size_of_a_download_is_stated_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeHub(["config.json", "model.safetensors", "README.md"], size=6_900_000_000).install(monkeypatch)
    monkeypatch.setattr("inference.backends.hub._free", lambda _: 20_000_000_000)
    with pytest.raises(KeyboardInterrupt):  # that is where the download begins
        hub.download("someone/model")
    stated = capsys.readouterr().err
    assert "Downloading someone/model once: 13.8 GB in 2 files, to " in stated
    assert "20.0 GB are free" in stated


def test_a_download_that_the_disk_cannot_hold_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeHub(["config.json", "model.safetensors"], size=10**15)
    fake.install(monkeypatch)
    with pytest.raises(CheckpointError, match=r"needs 2000000\.0 GB of disk .* are free.* HF_HOME"):
        hub.download("someone/model")
    assert fake.patterns == []


def test_an_interrupt_ends_a_download(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeHub(["config.json", "model.safetensors"]).install(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        hub.download("someone/model")


# Without a network, through the installed client ---------------------------------------------------------

DOWNLOAD = """
import sys
from inference.backends import hub
from inference.engine import ModelNotFound
try:
    sys.stdout.write(f"found {hub.download('someone/model')}")
except ModelNotFound as error:
    sys.stdout.write(f"failed: {error}")
"""


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Bound but not listened on, so that no other process can open it meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """An empty snapshot in a cache of its own."""
    repo = tmp_path / "hub" / "models--someone--model"
    folder = repo / "snapshots" / ("a" * 40)
    folder.mkdir(parents=True)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    return folder


def put(folder: Path, *names: str, shards: list[str] | None = None) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("{}", encoding="utf-8")
    if shards is not None:
        index = {"weight_map": {f"tensor.{at}": shard for at, shard in enumerate(shards)}}
        (folder / hub.INDEX).write_text(json.dumps(index), encoding="utf-8")


def answer_offline(cache: Path, port: int) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    began = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", DOWNLOAD],
        env=kept | {"HF_HOME": str(cache), "HF_ENDPOINT": f"http://127.0.0.1:{port}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    # The client's own retries take 26 s.
    assert time.monotonic() - began < 15
    return found.stdout


def test_offline_the_error_of_an_unknown_repo_lists_what_was_tried(tmp_path: Path, closed_port: int) -> None:
    message = answer_offline(tmp_path, closed_port)
    assert message.startswith("failed: ")
    for part in (
        "'someone/model'",
        "not a folder",
        "cache",
        "ConnectError",
        "online",
        "gated",
        "HF_TOKEN",
        "tiny",
    ):
        assert part in message
    assert "\n" not in message


def test_offline_a_whole_snapshot_in_the_cache_is_served(
    tmp_path: Path, snapshot: Path, closed_port: int
) -> None:
    put(snapshot, "config.json", "a.safetensors", "b.safetensors", shards=["a.safetensors", "b.safetensors"])
    assert answer_offline(tmp_path, closed_port) == f"found {snapshot}"


def test_offline_a_snapshot_that_lacks_a_file_is_reported(
    tmp_path: Path, snapshot: Path, closed_port: int
) -> None:
    put(snapshot, "config.json", "a.safetensors", shards=["a.safetensors", "b.safetensors"])
    message = answer_offline(tmp_path, closed_port)
    assert message.startswith("failed: ")
    assert "the copy there lacks b.safetensors" in message


def test_offline_the_complete_layout_is_served(tmp_path: Path, snapshot: Path, closed_port: int) -> None:
    put(snapshot, "config.json")
    put(snapshot / "original", "config.json", "model.safetensors")
    assert answer_offline(tmp_path, closed_port) == f"found {snapshot / 'original'}"


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["model.safetensors"], None),
        ([], "its .safetensors files"),
        (["model-00001-of-00002.safetensors"], hub.INDEX),
        (["model.safetensors", hub.INDEX], f"a readable {hub.INDEX}"),
    ],
)
def test_the_missing_file_of_a_copy_is_named(tmp_path: Path, names: list[str], missing: str | None) -> None:
    put(tmp_path, "config.json", *names)
    assert hub._missing(tmp_path) == missing


def test_offline_a_complete_older_snapshot_replaces_an_interrupted_update(
    tmp_path: Path, snapshot: Path, closed_port: int
) -> None:
    put(snapshot, "config.json")  # the cache names it before its weights arrive
    older = snapshot.with_name("b" * 40)
    put(older, "config.json", "model.safetensors")
    assert answer_offline(tmp_path, closed_port) == f"found {older}"
