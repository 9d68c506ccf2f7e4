"""Models by name, and the errors of unknown names; the imports of the package."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import inference
from inference import next_token
from inference.backends.checkpoints import _served_name
from inference.backends.names import names_model
from inference.backends.table import runs_here
from inference.engine import CheckpointError, ContextOverflow, InferenceError, ModelNotFound
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
    assert (names_model(name), runs_here(name)) == (True, False)


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
        inference.load(str(tmp_path / name))


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


def test_only_new_tokens_are_computed_with_the_same_result(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = inference.setup_model(str(checkpoint))
    texts = [[1, 2, 3], [1, 2, 3]]
    for is_new, tokens in enumerate(texts):
        while len(tokens) < 33:
            tokens.append(infer(tokens, 0.0, new_request=bool(is_new)))
    assert texts[0] == texts[1]
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


def test_long_prompts_start_over_and_those_that_do_not_fit_are_errors(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = inference.setup_model(str(checkpoint))
    long = [at % 500 for at in range(100)]
    wanted = infer(long, 0.0, True)
    monkeypatch.setattr(next_token, "PREFILL_CHUNK", 9)
    infer([5, 6], 0.0, False)
    assert infer(long, 0.0, False) == wanted
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
