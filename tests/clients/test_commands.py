"""Unmodified terminal commands: `llm` and opencode."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.clients.recording import recorded
from tests.doubles.clients.running import HELLO, PLACE, call, command, run
from tests.doubles.serving import scripted

pytestmark = pytest.mark.clients

LLM_MODEL = """\
- model_id: local
  model_name: scripted
  api_base: {url}
  api_key_name: local
  supports_schema: true
  supports_tools: true
"""


def test_llm(tmp_path: Path) -> None:
    llm = command("llm")
    turns = [HELLO, HELLO, PLACE, PLACE, call("llm_version", {}), HELLO]
    with recorded(scripted(*turns, loop=False)) as (url, recorder):
        (tmp_path / "extra-openai-models.yaml").write_text(LLM_MODEL.format(url=url), encoding="utf-8")

        def output(*arguments: str) -> str:
            done = run([llm, *arguments], tmp_path, env={"LLM_USER_PATH": str(tmp_path)})
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        output("keys", "set", "local", "--value", "any")
        assert output("-m", "local", "Hi") == "Hello!"
        assert output("-m", "local", "-c", "Again") == "Hello!"
        assert json.loads(output("-m", "local", "--schema", "city str", "A city?")) == {"city": "Paris"}
        whole = output("-m", "local", "--no-stream", "--schema", "city str", "A city?")
        assert json.loads(whole) == {"city": "Paris"}
        assert output("-m", "local", "-T", "llm_version", "Which version?") == "Hello!"
    recorder.check()


def opencode_settings(url: str, package: str) -> dict[str, Any]:
    model = {"name": "gpt-oss", "reasoning": True, "tool_call": True}
    return {
        "autoupdate": False,
        "share": "disabled",
        "model": "local/scripted",
        "small_model": "local/scripted",
        "enabled_providers": ["local"],
        "provider": {
            "local": {
                "npm": package,
                "name": "Local",
                "options": {"baseURL": url, "apiKey": "any"},
                "models": {"scripted": {**model, "limit": {"context": 131_072, "output": 16_384}}},
            }
        },
        "permission": {"edit": "allow", "bash": "allow"},
    }


@pytest.mark.parametrize(
    ("package", "path"),
    [("@ai-sdk/openai-compatible", "/v1/chat/completions"), ("@ai-sdk/openai", "/v1/responses")],
)
def test_opencode_writes_a_file(package: str, path: str, tmp_path: Path) -> None:
    opencode = command("opencode")
    made = tmp_path / "made.txt"
    title = {"when": "title generator", "text": "<|channel|>final<|message|>A title<|return|>"}
    write = call("write", {"filePath": str(made), "content": "hi\n"})
    with recorded(scripted(title, write, HELLO, loop=False)) as (url, recorder):
        config = tmp_path / "opencode.json"
        config.write_text(json.dumps(opencode_settings(url, package)), encoding="utf-8")
        flags = (
            "OPENCODE_DISABLE_AUTOUPDATE",
            "OPENCODE_DISABLE_MODELS_FETCH",
            "OPENCODE_DISABLE_LSP_DOWNLOAD",
        )
        done = run(
            [opencode, "run", "--format", "json", "-m", "local/scripted", "Make made.txt"],
            tmp_path,
            env={"OPENCODE_CONFIG": str(config), **dict.fromkeys(flags, "1")},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    assert made.read_text() == "hi\n"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["part"]["text"] for event in events if event["type"] == "text"] == ["Hello!"]
    assert len(recorder.of(path)) == 3
    recorder.check()
