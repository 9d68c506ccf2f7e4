"""The cache on disk as users see it: `warm`, a server that is started again, an owner's blocks deleted."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import inference
from gpt_oss_server.cli.main import main
from gpt_oss_server.cli.server.greeting import greeting
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint
from tests.doubles.inference.tiered import RESTORING_PAYS
from tests.doubles.observing.figures import Scraped, scraped_at
from tests.doubles.serving import serving

ANNA, BEN = "sk-anna-0123456789abcdef", "sk-ben-0123456789abcdef"
TWO_LAYERS = replace(SMALLEST, layers=2, sliding_layers=(True, False))
REQUEST = {"input": "The same long beginning, word for word, in each of these. " * 12}
BODIES: dict[str, dict[str, Any]] = {
    "responses": {**REQUEST, "max_output_tokens": 4},
    "chat/completions": {"messages": [{"role": "user", "content": "Word for word. " * 40}], "max_tokens": 4},
    "messages": {
        "model": "x",
        "max_tokens": 4,
        "system": "Be brief. " * 40,
        "messages": [{"role": "user", "content": "Hi"}],
    },
}


@pytest.fixture(autouse=True)
def _restoring_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """This model computes a token faster than a busy disk may read it."""
    monkeypatch.setattr("inference.local.tiers.opening.measured", lambda *_: RESTORING_PAYS)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_random_checkpoint(tmp_path_factory.mktemp("smallest"), TWO_LAYERS, seed=5))


def settings(checkpoint: str, folder: Path, **more: Any) -> Settings:
    return Settings(model=checkpoint, device="cpu", cache_dir=str(folder), served_model_name=("*",), **more)


def usages(
    chosen: Settings, *bodies: tuple[str, dict[str, Any]], key: str = "none"
) -> tuple[list[Any], Scraped]:
    """The usage of each answer of a server of its own, and its figures after them."""
    engine = inference.load(chosen.model, options=chosen)
    with serving(engine, chosen) as url, httpx.Client(timeout=60) as client:
        client.headers["authorization"] = f"Bearer {key}"
        found = [client.post(f"{url}/{path}", json=body).raise_for_status().json() for path, body in bodies]
        figures = scraped_at(url.removesuffix("/v1"))
    return [each["usage"] for each in found], figures


def test_a_server_that_is_started_again_has_what_the_last_one_read(checkpoint: str, tmp_path: Path) -> None:
    chosen = settings(checkpoint, tmp_path)
    first, figures = usages(chosen, ("responses", BODIES["responses"]))
    assert first[0]["input_tokens_details"]["cached_tokens"] == 0
    again, figures = usages(chosen, ("responses", BODIES["responses"]))
    cached = again[0]["input_tokens_details"]["cached_tokens"]
    assert again[0]["input_tokens"] - 16 <= cached < again[0]["input_tokens"]
    assert figures.own("cache_restored_from_disk_total") == cached
    assert figures.own("cache_read_bytes_total") > 0
    assert figures.own("cache_disk_bytes") == sum(path.stat().st_size for path in tmp_path.glob("*/*/*.kv"))
    assert f'model="{Path(checkpoint).name}"' in figures.text


def test_prompts_that_were_warmed_are_restored(checkpoint: str, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    words = [checkpoint, "--device", "cpu", "--cache-dir", str(tmp_path / "cache")]
    for body in BODIES.values():
        request.write_text(json.dumps(body))
        assert main(["warm", str(request), *words]) == 0
    found, figures = usages(settings(checkpoint, tmp_path / "cache"), *BODIES.items())
    assert found[0]["input_tokens_details"]["cached_tokens"] > 80
    assert found[1]["prompt_tokens_details"]["cached_tokens"] > 80
    assert found[2]["cache_read_input_tokens"] > 80
    assert figures.own("cache_restored_from_disk_total") > 240


CODEX = """#!{python}
import json, sys, time, urllib.error, urllib.request
[url] = [word.partition("=")[2] for word in sys.argv if ".base_url=" in word]
assert sys.argv[-3:] == ["exec", "--skip-git-repo-check", "Hello"]
for tools in ([], [{{"type": "function", "name": "f", "parameters": {{}}}}]):
    body = {{"model": "m", "instructions": "Be brief. " * 40, "input": sys.argv[-1], "tools": tools}}
    try:
        urllib.request.urlopen(json.loads(url) + "/responses", json.dumps(body).encode())
    except urllib.error.HTTPError:
        pass
time.sleep({seconds})
"""


@pytest.mark.parametrize("seconds", [0, 600], ids=["ends", "stays"])
def test_what_a_client_sends_first_is_read_from_the_client(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    program, words = tmp_path / "codex", [checkpoint, "--device", "cpu", "--cache-dir", str(tmp_path / "c")]
    program.write_text(CODEX.format(python=sys.executable, seconds=seconds))
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["warm", "codex", *words]) == 0
    tools = [{"type": "function", "name": "f", "parameters": {}}]
    body = {"instructions": "Be brief. " * 40, "input": "Go on", "tools": tools, "max_output_tokens": 2}
    found, _ = usages(settings(checkpoint, tmp_path / "c"), ("responses", body))
    assert found[0]["input_tokens_details"]["cached_tokens"] > 80


def test_each_owner_has_blocks_of_its_own_that_can_be_deleted(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    request, cache = tmp_path / "request.json", ["--cache-dir", str(tmp_path / "cache")]
    request.write_text(json.dumps(BODIES["responses"]))
    keys = tmp_path / "keys"
    keys.write_text(f"{ANNA} name=anna\n{BEN} name=ben\n")
    keys.chmod(0o600)
    chosen = settings(checkpoint, tmp_path / "cache", api_key_file=str(keys))
    assert main(["warm", str(request), checkpoint, "--device", "cpu", "--owner", "anna", *cache]) == 0

    def restored(key: str) -> bool:
        _, figures = usages(chosen, ("responses", BODIES["responses"]), key=key)
        return figures.own("cache_restored_from_disk_total") > 0

    assert not restored(BEN)
    assert restored(ANNA)
    assert main(["warm", "--forget", "anna", *cache]) == 0
    assert not restored(ANNA)
    assert restored(BEN)
    assert "packs of anna" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["warm", "x.json"], "Name the cache: gpt-oss-server warm FILE --cache-dir FOLDER"),
        (["warm", "--cache-dir", "{}"], "Name a request or a client"),
        (["warm", "qwen", "--cache-dir", "{}"], "npm install -g @qwen-code/qwen-code"),
        (["warm", "--forget", "a", "--cache-dir", "~nobody-here"], "~nobody-here names no folder"),
    ],
)
def test_a_mistake_is_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word.format(tmp_path) for word in words]) == 1
    assert sentence in capsys.readouterr().err


def test_a_greeting_states_the_cache_or_how_to_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    info = EngineInfo(name="x", context_length=1024)

    def cache(**chosen: Any) -> str:
        lines = greeting(Settings(**chosen), info, "http://x").splitlines()
        return next((line.strip() for line in lines if line.startswith("  Cache")), "")

    assert cache(cache_dir="/kept") == "Cache    prompts in /kept, up to 20 GiB"
    assert cache(cache_disk=1).startswith("Cache    --cache-dir ~/.cache/")
    assert cache(cache_disk=1, model="vllm:http://x") == ""
    assert cache(cache_disk=1 << 60) == "", "no disk has room"
