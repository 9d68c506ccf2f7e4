"""Repos of the hub: which files are downloaded, and the behaviour without a network, with the real client."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

import inference
from inference.backends import hub
from inference.engine import CheckpointError, ModelNotFound

WEIGHTS = [f"model-0000{number}-of-00002.safetensors" for number in (0, 1)]
ROOT = ["config.json", "generation_config.json", *WEIGHTS, hub.INDEX]
ORIGINAL = ["original/config.json", "original/model.safetensors"]
OTHERS = ["README.md", "metal/model.bin", "tokenizer.json"]


@pytest.mark.parametrize(
    ("names", "needed"),
    [([*OTHERS, *ROOT, *ORIGINAL], ROOT), ([*OTHERS, *ORIGINAL], ORIGINAL), (["README.md"], [])],
)
def test_only_one_layout_of_a_repo_is_downloaded(names: list[str], needed: list[str]) -> None:
    assert hub.files_needed(names) == needed


class FakeHub:
    """A hub that is online."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: list[str], **facts: Any) -> None:
        self.files, self.folder = files, facts.get("folder")
        self.size, self.config = facts.get("size", 1_000_000), facts.get("config")
        self.patterns: list[list[str]] = []
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: self)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot_download)

    def model_info(self, repo: str, *, timeout: float, files_metadata: bool) -> SimpleNamespace:
        size = self.size if files_metadata else None
        siblings = [SimpleNamespace(rfilename=name, size=size) for name in self.files]
        return SimpleNamespace(sha="a" * 40, siblings=siblings, config=self.config)

    def snapshot_download(self, repo: str, *, allow_patterns: list[str]) -> str:
        self.patterns.append(allow_patterns)
        if self.folder is None:
            raise KeyboardInterrupt
        return str(self.folder)


FILES = ["config.json", "model.safetensors"]


def test_a_repo_is_downloaded_and_served_under_its_name(
    whole_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeHub(monkeypatch, [*FILES, "README.md"], folder=whole_vocabulary)
    assert inference.load("someone/some-gpt-oss", device="cpu").info.name == "some-gpt-oss"
    assert fake.patterns == [FILES]


@pytest.mark.parametrize(
    ("files", "facts", "error", "sentence"),
    [
        (FILES, {"config": {"model_type": "llama"}}, ModelNotFound, "another kind of model: llama.*-20b"),
        (["gpt-oss-20b-mxfp4.gguf"], {}, ModelNotFound, r"mxfp4\.gguf is a GGUF file.*openai/gpt-oss-20b"),
        (["config.json", "pytorch_model.bin"], {}, ModelNotFound, "pickle format.*openai/gpt-oss-20b"),
        (["README.md"], {}, ModelNotFound, r"no \.safetensors weights"),
        (FILES, {"size": 10**15}, CheckpointError, r"needs 2000000\.0 GB of disk .* are free.* HF_HOME"),
    ],
)
def test_what_cannot_be_served_is_refused_before_it_is_downloaded(
    files: list[str], facts: dict[str, Any], error: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeHub(monkeypatch, files, **facts)
    with pytest.raises(error, match=sentence):
        inference.load("someone/some-model")
    assert not fake.patterns


def test_the_size_of_a_download_is_stated_before_it_begins_and_an_interrupt_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeHub(monkeypatch, [*FILES, "README.md"], size=6_900_000_000)
    monkeypatch.setattr(hub, "_free", lambda _: 20_000_000_000)
    with pytest.raises(KeyboardInterrupt):
        hub.download("someone/model")
    stated = capsys.readouterr().err
    assert "Downloading someone/model once: 13.8 GB in 2 files, to " in stated
    assert "20.0 GB are free" in stated


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


def put(folder: Path, *names: str, shards: list[str] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}", encoding="utf-8")
    if shards is not None:
        index = {"weight_map": {f"tensor.{at}": shard for at, shard in enumerate(shards)}}
        (folder / hub.INDEX).write_text(json.dumps(index), encoding="utf-8")


def answer_offline(cache: Path, port: int) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
    began = time.monotonic()
    env = kept | {"HF_HOME": str(cache), "HF_ENDPOINT": f"http://127.0.0.1:{port}"}
    command = [sys.executable, "-c", DOWNLOAD]
    found = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 0, found.stderr
    # The client's own retries take 26 s.
    assert time.monotonic() - began < 15
    return found.stdout


def test_offline_the_error_of_an_unknown_repo_lists_what_was_tried(tmp_path: Path, closed_port: int) -> None:
    message = answer_offline(tmp_path, closed_port)
    parts = "failed: |'someone/model'|not a folder|cache|ConnectError|online|gated|HF_TOKEN|tiny"
    assert all(part in message for part in parts.split("|"))
    assert "\n" not in message


SHARDS = ["a.safetensors", "b.safetensors"]
OLDER = "../" + "b" * 40  # the cache names a snapshot before its weights arrive


@pytest.mark.parametrize(
    ("folder", "names", "shards", "found"),
    [
        (".", SHARDS, SHARDS, "."),
        (".", SHARDS[:1], SHARDS, None),
        ("original", ["model.safetensors"], None, "original"),
        (OLDER, ["model.safetensors"], None, OLDER),
    ],
    ids=["whole", "without a file", "only one layout is whole", "an older one is whole"],
)
def test_offline_what_is_complete_in_the_cache_is_served(
    tmp_path: Path, closed_port: int, folder: str, names: list[str], shards: Any, found: str | None
) -> None:
    repo = tmp_path / "hub" / "models--someone--model"
    snapshot = repo / "snapshots" / ("a" * 40)
    put(snapshot, "config.json")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("a" * 40, encoding="utf-8")
    put(snapshot / folder, "config.json", *names, shards=shards)
    answer = answer_offline(tmp_path, closed_port)
    if found is None:
        assert re.match(r"failed: .*the copy there lacks b\.safetensors", answer)
    else:
        assert answer == f"found {os.path.normpath(snapshot / found)}"


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
