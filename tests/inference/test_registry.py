"""Models by name, and the errors of unknown names; the imports of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

import inference
from inference import next_token, tiny
from inference.backends.checkpoints import _served_name
from inference.backends.names import names_model
from inference.backends.table import runs_here
from inference.config import ModelConfig, RopeConfig
from inference.engine import CheckpointError, ContextOverflow, InferenceError, ModelNotFound, Sampling
from tests.doubles.inference.random_checkpoint import write_random_checkpoint


def test_a_folder_is_served_under_its_name(tmp_path: Path, whole_vocabulary: Path) -> None:
    shutil.copytree(whole_vocabulary, tmp_path / "my-model")
    engine = inference.load(f"{tmp_path}/my-model/", device="cpu", context=100)
    assert (engine.info.name, engine.info.context_length, engine.info.vocab_size) == (
        "my-model",
        100,
        201_088,
    )


def test_a_link_is_served_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = tmp_path / "snapshots" / "6cee5e81ee83"
    snapshot.mkdir(parents=True)
    (tmp_path / "my-model").symlink_to(snapshot)
    assert _served_name(f"{tmp_path}/my-model/") == "my-model"
    monkeypatch.chdir(tmp_path / "snapshots")
    assert (_served_name("../my-model"), _served_name(".")) == ("my-model", "snapshots")


def test_a_folder_that_is_no_checkpoint_is_a_checkpoint_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint"):
        inference.load(str(tmp_path))


@pytest.mark.parametrize("name", ["tinny", "./not/here", "/not/here", "a/b/c", ""])
def test_the_error_of_an_unknown_name_lists_the_known_kinds(name: str) -> None:
    with pytest.raises(ModelNotFound, match=r"tiny .*a folder.*scripted:FILE.*random:SHAPE"):
        inference.load(name)


def test_the_error_of_a_file_says_that_it_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelNotFound, match=r"is a file.*scripted:"):
        inference.load(str(tmp_path / "x.json"))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("gpt-oss:20b", "openai/gpt-oss-20b"),
        ("gpt-oss", "openai/gpt-oss-20b"),
        ("GPT-OSS-120B", "openai/gpt-oss-120b"),
        ("openai/gpt-oss:120b", "openai/gpt-oss-120b"),
        ("gtp-oss-20b", "openai/gpt-oss-20b"),
        ("https://huggingface.co/openai/gpt-oss-20b", "openai/gpt-oss-20b"),
        ("tinny", "tiny"),
        ("script:demo.json", "scripted:demo.json"),
    ],
)
def test_a_name_as_others_write_it_is_led_to_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(ModelNotFound, match=rf"Did you mean {re.escape(meant)}\?"):
        inference.load(name)


@pytest.mark.parametrize("name", ["llama3", "qwen", "mistral:7b"])
def test_a_name_that_resembles_none_gets_no_guess(name: str) -> None:
    with pytest.raises(ModelNotFound, match=r"no other kind of name fits\. Known:"):
        inference.load(name)


@pytest.mark.parametrize(
    ("kind", "instead"), [("trtllm", "sglang:URL"), ("dynamo", "vllm:URL"), ("ollama", "llama:URL")]
)
def test_a_server_that_cannot_be_an_engine_is_refused_with_what_can(kind: str, instead: str) -> None:
    with pytest.raises(ModelNotFound, match=f"{kind}: is not supported") as caught:
        inference.load(f"{kind}:http://127.0.0.1:1")
    assert instead in str(caught.value)
    assert names_model(f"{kind}:http://127.0.0.1:1")
    assert not runs_here(f"{kind}:http://127.0.0.1:1")


def test_a_misspelt_folder_is_led_to_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "gpt-oss-mine").mkdir()
    with pytest.raises(ModelNotFound, match=r"Did you mean .*/gpt-oss-mine"):
        inference.load(str(tmp_path / "gpt-oss-mien"))


def test_other_kinds_of_checkpoints_are_refused_for_what_they_are(tmp_path: Path) -> None:
    llama = tmp_path / "llama"
    llama.mkdir()
    (llama / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (llama / "model.safetensors").write_bytes(b"")
    gguf, blob = tmp_path / "gpt-oss-20b.gguf", tmp_path / "sha256-abc"
    for file in (gguf, blob):
        file.write_bytes(b"GGUF\3\0\0\0")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "consolidated.00.pth").write_bytes(b"PK")
    weights = llama / "model.safetensors"
    for path, sentence in (
        (llama, r"another kind of model: llama \(LlamaForCausalLM\)"),
        (gguf, "is a GGUF file"),
        (blob, "is a GGUF file"),
        (tmp_path, "is a GGUF file"),
        (pickled, "pickle format"),
        (weights, "is one file of a checkpoint. Name its folder"),
    ):
        with pytest.raises(CheckpointError, match=sentence):
            inference.load(str(path))


# Random weights -------------------------------------------------------------------------------------------


async def test_random_weights_of_a_shape_generate_and_speak_harmony() -> None:
    engine = inference.load("random:tiny", device="cpu", context=300)
    try:
        assert (engine.info.name, engine.info.context_length, engine.info.vocab_size) == (
            "random-tiny",
            300,
            201_088,
        )
        assert engine.info.description.startswith("Random weights, for measuring only")
        sampling = Sampling(max_tokens=5, stop_token_ids=frozenset(), seed=1)
        sampled = [token async for step in engine.generate([1, 2, 3], sampling) for token in step.tokens]
        assert len(sampled) == 5
    finally:
        await engine.close()


@pytest.mark.parametrize("name", ["random:", "random:7b", "random:20B"])
def test_the_error_of_an_unknown_shape_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ModelNotFound, match="random:20b, random:120b, random:tiny"):
        inference.load(name)


def test_the_context_of_random_weights_is_at_most_that_of_their_shape() -> None:
    with pytest.raises(CheckpointError, match="9000 tokens; the shape tiny supports 8192"):
        inference.load("random:tiny", device="cpu", context=9_000)


# The embedded model ---------------------------------------------------------------------------------------


@pytest.fixture
def small_tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache, and a model that takes no time to write."""

    def write(folder: Path) -> None:
        config = ModelConfig(
            layers=1, hidden=32, intermediate=32, vocab_size=100, heads=2, kv_heads=1, head_dim=8,
            experts=2, experts_per_token=1, sliding_window=8, sliding_layers=(True,), context_length=64,
            rope=RopeConfig(original_context=8),
        )  # fmt: skip
        write_random_checkpoint(folder, config)

    monkeypatch.setenv("GPT_OSS_SERVER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tiny, "_write", write)
    return tmp_path / "cache"


def test_the_embedded_model_is_made_once_and_completely(small_tiny: Path) -> None:
    folder = tiny.checkpoint()
    made = (folder / "model.safetensors").stat().st_ino
    assert tiny.checkpoint() == folder
    assert (folder / "model.safetensors").stat().st_ino == made
    assert [path.name for path in small_tiny.iterdir()] == [folder.name]


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "no manifest"])
def test_an_incomplete_embedded_model_is_made_again(small_tiny: Path, harm: str) -> None:
    folder = tiny.checkpoint()
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    match harm:
        case "cut":
            weights.write_bytes(content[:100])
        case "changed":
            weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        case "gone":
            weights.unlink()
        case _:
            (folder / tiny.MANIFEST).unlink()
    tiny.checkpoint()
    assert weights.read_bytes() == content
    assert len(list(small_tiny.iterdir())) == 1


def test_a_copy_with_other_times_is_still_complete(small_tiny: Path) -> None:
    weights = tiny.checkpoint() / "model.safetensors"
    made = weights.stat().st_ino
    weights.touch()
    tiny.checkpoint()
    assert weights.stat().st_ino == made


def test_a_failure_while_making_it_leaves_nothing(small_tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x", encoding="utf-8")
        raise OSError("disk full")

    monkeypatch.setattr(tiny, "_write", fail)
    with pytest.raises(
        CheckpointError, match=r"disk full\. Set GPT_OSS_SERVER_CACHE .* 300 MB of free space"
    ):
        tiny.checkpoint()
    assert list(small_tiny.iterdir()) == []


def test_a_full_disk_is_reported_in_the_words_of_the_weights_library(
    small_tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny, "_write", lambda folder: save_file({}, folder / "no such folder" / "file"))
    with pytest.raises(CheckpointError, match="cannot be written to"):
        tiny.checkpoint()


def test_unfinished_files_of_a_killed_process_are_removed(small_tiny: Path) -> None:
    older, newer = small_tiny / "tiny-1-abc.x1", small_tiny / "tiny-1-abc.x2"
    for folder in (older, newer):
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"half")
    os.utime(older, (0, 0))
    made = tiny.checkpoint()
    assert {path.name for path in small_tiny.iterdir()} == {made.name, newer.name}


def test_a_cache_in_an_unknown_home_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPT_OSS_SERVER_CACHE", "~nobody-of-this-name/cache")
    with pytest.raises(CheckpointError, match="GPT_OSS_SERVER_CACHE: ~nobody-of-this-name/cache names no"):
        tiny.checkpoint()


def test_the_error_of_an_unwritable_cache_names_the_variable_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    monkeypatch.setenv("GPT_OSS_SERVER_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CheckpointError, match="Set GPT_OSS_SERVER_CACHE"):
        tiny.checkpoint()


def test_other_users_can_read_the_files(small_tiny: Path) -> None:
    """An image that is built as root may run as another user."""
    before = os.umask(0o022)
    try:
        folder = tiny.checkpoint()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


def test_the_error_of_a_user_without_home_names_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPT_OSS_SERVER_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(CheckpointError, match="Set GPT_OSS_SERVER_CACHE"):
        tiny.checkpoint()


def no_home() -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPT_OSS_SERVER_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert tiny.cache_folder() == Path("/somewhere/gpt-oss-server")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert tiny.cache_folder() == Path.home() / ".cache/gpt-oss-server"


# infer_next_token -----------------------------------------------------------------------------------------


def greedy(infer: Any, tokens: list[int], count: int, **options: Any) -> list[int]:
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(infer(tokens, 0.0, **options))
    return tokens


def test_incremental_calls_equal_fresh_ones(checkpoint: Path) -> None:
    infer = inference.setup_model(str(checkpoint))
    continued = greedy(infer, [1, 2, 3], 30)
    assert continued == greedy(infer, [1, 2, 3], 30, new_request=True)
    assert len(continued) == 33


def test_only_new_tokens_are_computed(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    infer = inference.setup_model(str(checkpoint))
    seen: list[int] = []
    original = next_token._Continuation._take

    def watched(self: Any, tokens: list[int], new_request: bool) -> Any:
        found = original(self, tokens, new_request)
        seen.append(found[0])
        return found

    monkeypatch.setattr(next_token._Continuation, "_take", watched)
    for tokens in ([1, 2], [1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 4, 5], [9]):
        infer(tokens, 0.0, False)
    infer([9, 1], 0.0, True)
    assert seen == [0, 2, 0, 3, 0, 0]


def test_other_tokens_and_long_prompts_start_over(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    infer = inference.setup_model(str(checkpoint))
    long = [at % 500 for at in range(100)]
    wanted = infer(long, 0.0, True)
    monkeypatch.setattr(next_token, "PREFILL_CHUNK", 9)
    infer([5, 6], 0.0, False)
    assert infer(long, 0.0, False) == wanted


def test_prompts_that_do_not_fit_are_errors(checkpoint: Path) -> None:
    infer = inference.setup_model(str(checkpoint))
    with pytest.raises(InferenceError, match="at least one token"):
        infer([], 0.0, False)
    with pytest.raises(ContextOverflow):
        infer([1] * 1024, 0.0, False)
    for wrong in (-1, 500_000):
        with pytest.raises(InferenceError, match=f"{wrong} is not a token"):
            infer([1, wrong], 0.0, False)


def test_the_default_model_is_the_one_that_the_environment_names(
    whole_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_token._default.cache_clear()
    monkeypatch.setenv("GPT_OSS_MODEL", str(whole_vocabulary))
    wanted = inference.setup_model(str(whole_vocabulary))([1, 2, 3], 0.0, True)
    assert inference.infer_next_token([1, 2, 3]) == wanted
    next_token._default.cache_clear()


# Imports --------------------------------------------------------------------------------------------------


def test_importing_inference_imports_no_framework() -> None:
    heavy = ("torch", "transformers", "fastapi", "pydantic", "openai_harmony", "huggingface_hub", "numpy")
    code = (
        "import sys, inference, inference.backends.callable_engine, inference.backends.scripted\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_model_runs_without_harmony_hub_or_web_framework(whole_vocabulary: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('transformers', 'fastapi', 'pydantic', 'openai_harmony', 'huggingface_hub', 'tqdm'):\n"
        "    sys.modules[name] = None\n"
        "import inference\n"
        f"print(inference.setup_model({str(whole_vocabulary)!r})([1, 2, 3], 0.0, True))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert 0 <= int(found.stdout) < 201_088


def test_a_context_beyond_the_embedded_models_names_no_folder() -> None:
    sentence = r"^The requested context is 999999 tokens; tiny supports \d+\.$"
    with pytest.raises(CheckpointError, match=sentence):
        inference.load("tiny", device="cpu", context=999_999)


def test_a_context_beyond_a_folders_names_the_folder_as_it_was_given(
    tmp_path: Path, whole_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole_vocabulary, tmp_path / "my-model")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointError, match=r"tokens; \./my-model supports"):
        inference.load("./my-model", device="cpu", context=999_999)
