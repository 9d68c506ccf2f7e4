"""Models by name: folders, the hub's repos, random weights, errors of other names; `infer_next_token`."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

import inference
from inference import next_token
from inference.backends import hub
from inference.backends.checkpoints import _served_name
from inference.backends.names import names_model
from inference.backends.table import runs_here
from inference.engine import CheckpointError, ContextOverflow, EngineFailed, ModelNotFound
from inference.options import EngineOptions
from tests.contracts.engine_contract import GREEDY, generated


def test_a_folder_is_served_under_its_name(tmp_path: Path, whole_vocabulary: Path) -> None:
    shutil.copytree(whole_vocabulary, tmp_path / "my-model")
    engine = inference.load(f"{tmp_path}/my-model/", device="cpu", context=100)
    info = engine.info
    assert (info.name, info.context_length, info.vocab_size) == ("my-model", 100, 201_088)


def test_a_link_is_served_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "snapshots" / "6cee5e81ee83"
    snapshot.mkdir(parents=True)
    (tmp_path / "my-model").symlink_to(snapshot)
    assert _served_name(f"{tmp_path}/my-model/") == "my-model"
    monkeypatch.chdir(tmp_path / "snapshots")
    assert (_served_name("../my-model"), _served_name(".")) == ("my-model", "snapshots")


KNOWN = r"tiny .*a folder.*scripted:FILE.*random:SHAPE"
NO_OTHER = r"no other kind of name fits\. Known:"
SHAPES = "random:20b, random:120b, random:tiny"
UNKNOWN = dict.fromkeys(("tinny", "./not/here", "/not/here", "a/b/c", ""), KNOWN)
UNKNOWN |= dict.fromkeys(("llama3", "mistral:7b"), NO_OTHER)
UNKNOWN |= dict.fromkeys(("random:", "random:7b", "random:20B"), SHAPES)
MEANT = {"tinny": "tiny", "script:demo.json": "scripted:demo.json"}
MEANT |= dict.fromkeys(("GPT-OSS-120B", "openai/gpt-oss:120b"), "openai/gpt-oss-120b")
MEANT |= dict.fromkeys(("gpt-oss-20b", "gpt-oss:20b", "gpt-oss", "gtp-oss-20b"), "openai/gpt-oss-20b")
MEANT |= {"https://huggingface.co/openai/gpt-oss-20b": "openai/gpt-oss-20b"}
LED = {name: rf"Did you mean {re.escape(meant)}\?" for name, meant in MEANT.items()}


@pytest.mark.parametrize(("name", "words"), [*UNKNOWN.items(), *LED.items()])
def test_the_error_of_a_wrong_name_lists_the_known_kinds_or_leads_to_the_right_one(
    name: str, words: str
) -> None:
    with pytest.raises(ModelNotFound, match=words):
        inference.load(name)


@pytest.mark.parametrize(
    ("kind", "instead"), [("trtllm", "sglang:URL"), ("dynamo", "vllm:URL"), ("ollama", "llama:URL")]
)
def test_a_server_that_cannot_be_an_engine_is_refused_with_what_can(kind: str, instead: str) -> None:
    name = f"{kind}:http://127.0.0.1:1"
    with pytest.raises(ModelNotFound, match=f"{kind}: is not supported.*{instead}"):
        inference.load(name)
    assert (names_model(name), runs_here(name, EngineOptions())) == (True, False)


def test_a_misspelt_folder_is_led_to_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "gpt-oss-mine").mkdir()
    with pytest.raises(ModelNotFound, match=r"Did you mean .*/gpt-oss-mine"):
        inference.load(str(tmp_path / "gpt-oss-mien"))


LLAMA = b'{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}'


@pytest.mark.parametrize(
    ("name", "file", "content", "sentence"),
    [
        (".", "README.md", b"", "no checkpoint"),
        (".", "config.json", LLAMA, r"another kind of model: llama \(LlamaForCausalLM\)"),
        ("sha256-abc", "sha256-abc", b"GGUF\3\0\0\0", "is a GGUF file"),
        (".", "gpt-oss-20b.gguf", b"GGUF\3\0\0\0", "is a GGUF file"),
        (".", "consolidated.00.pth", b"PK", "pickle format"),
        ("x.safetensors", "x.safetensors", b"", "is one file of a checkpoint. Name its folder"),
    ],
)
def test_other_kinds_of_checkpoints_are_refused_for_what_they_are(
    tmp_path: Path, name: str, file: str, content: bytes, sentence: str
) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=sentence):
        inference.load(str(tmp_path / name), options=EngineOptions(engine="built-in"))


# Random weights -------------------------------------------------------------------------------------------


async def test_random_weights_of_a_shape_generate_and_speak_harmony() -> None:
    engine = inference.load("random:tiny", device="cpu", context=300)
    info = engine.info
    assert (info.name, info.context_length, info.vocab_size) == ("random-tiny", 300, 201_088)
    assert info.description.startswith("Random weights, for measuring only")
    assert len((await generated(engine, replace(GREEDY, max_tokens=5))).tokens) == 5
    await engine.close()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("random:tiny", r"^The requested context is 999999 tokens; the shape tiny supports 8192\.$"),
        ("tiny", r"^The requested context is 999999 tokens; tiny supports \d+\.$"),
        ("./my-model", r"tokens; \./my-model supports"),
    ],
)
def test_a_context_beyond_a_models_names_the_model_as_it_was_given(
    name: str, sentence: str, tmp_path: Path, whole_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my-model").symlink_to(whole_vocabulary)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=sentence):
        inference.load(name, device="cpu", context=999_999)


# infer_next_token -----------------------------------------------------------------------------------------


def test_the_next_token_is_that_of_the_engine_also_where_a_loop_runs(checkpoint: Path) -> None:
    infer, text = inference.setup_model(str(checkpoint)), [1, 2, 3]

    async def sampled() -> tuple[int, ...]:
        engine = inference.load(str(checkpoint))
        wanted = (
            await generated(engine, replace(GREEDY, max_tokens=30, stop_token_ids=frozenset()), text)
        ).tokens
        await engine.close()
        found = list(text)
        while len(found) < 33:
            found.append(infer(found, 0.0, len(found) == 3))
        assert found[3:] == list(wanted)
        return wanted

    asyncio.run(sampled())


def test_prompts_that_do_not_fit_are_errors(checkpoint: Path) -> None:
    infer = inference.setup_model(str(checkpoint))
    with pytest.raises(EngineFailed, match=r"prompt is empty.* at least one token"):
        infer([], 0.0, False)
    with pytest.raises(ContextOverflow):
        infer([1] * 1024, 0.0, False)
    for wrong in (-1, 500):
        with pytest.raises(EngineFailed, match=f"prompt has the token {wrong}"):
            infer([1, wrong], 0.0, False)


def test_the_default_model_is_the_one_that_the_environment_names(
    whole_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_token._default.cache_clear()
    monkeypatch.setenv("GPT_OSS_MODEL", str(whole_vocabulary))
    wanted = inference.setup_model(str(whole_vocabulary))([1, 2, 3], 0.0, True)
    assert inference.infer_next_token([1, 2, 3]) == wanted
    next_token._default.cache_clear()


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
