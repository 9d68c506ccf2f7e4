"""Unmodified terminal commands: `llm` and the coding agents opencode, pi and aider."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.clients.running import HELLO, PLACE, call, command, final, recorded, run
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
    with recorded(scripted(*turns, loop=False)) as (url, _):
        (tmp_path / "extra-openai-models.yaml").write_text(LLM_MODEL.format(url=url), encoding="utf-8")

        def output(*arguments: str) -> str:
            done = run([llm, *arguments], tmp_path, env={"LLM_USER_PATH": str(tmp_path)})
            return done.stdout.strip()

        output("keys", "set", "local", "--value", "any")
        assert output("-m", "local", "Hi") == "Hello!"
        assert output("-m", "local", "-c", "Again") == "Hello!"
        assert json.loads(output("-m", "local", "--schema", "city str", "A city?")) == {"city": "Paris"}
        whole = output("-m", "local", "--no-stream", "--schema", "city str", "A city?")
        assert json.loads(whole) == {"city": "Paris"}
        assert output("-m", "local", "-T", "llm_version", "Which version?") == "Hello!"


def opencode_settings(url: str, package: str) -> dict[str, Any]:
    limit = {"context": 131_072, "output": 16_384}
    model = {"name": "gpt-oss", "reasoning": True, "tool_call": True, "limit": limit}
    options = {"baseURL": url, "apiKey": "any"}
    provider = {"npm": package, "name": "Local", "options": options, "models": {"scripted": model}}
    names = dict.fromkeys(("model", "small_model"), "local/scripted")
    settings = {"autoupdate": False, "share": "disabled", "permission": {"edit": "allow", "bash": "allow"}}
    return {**names, **settings, "enabled_providers": ["local"], "provider": {"local": provider}}


@pytest.mark.parametrize(
    ("package", "path"),
    [
        ("@ai-sdk/openai-compatible", "/v1/chat/completions"),
        ("@ai-sdk/openai", "/v1/responses"),
        ("@ai-sdk/anthropic", "/v1/messages"),
    ],
)
def test_opencode_writes_a_file(package: str, path: str, tmp_path: Path) -> None:
    opencode = command("opencode")
    made = tmp_path / "made.txt"
    title = {"when": "title generator", "text": "<|channel|>final<|message|>A title<|return|>"}
    write = call("write", {"filePath": str(made), "content": "hi\n"})
    with recorded(scripted(title, write, HELLO, loop=False)) as (url, recorder):
        config = tmp_path / "opencode.json"
        config.write_text(json.dumps(opencode_settings(url, package)), encoding="utf-8")
        flags = [f"OPENCODE_DISABLE_{what}" for what in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD")]
        words = [opencode, "run", "--format", "json", "-m", "local/scripted", "Make made.txt"]
        done = run(words, tmp_path, env={"OPENCODE_CONFIG": str(config), **dict.fromkeys(flags, "1")})
    assert made.read_text() == "hi\n"
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["part"]["text"] for event in events if event["type"] == "text"] == ["Hello!"]
    assert len(recorder.of(path)) == 3


@pytest.mark.parametrize(
    ("api", "path"), [("openai-completions", "/v1/chat/completions"), ("openai-responses", "/v1/responses")]
)
def test_pi_writes_a_file(api: str, path: str, tmp_path: Path) -> None:
    pi = command("pi")
    write = call("write", {"path": "made.txt", "content": "hi\n"})
    with recorded(scripted(write, HELLO, loop=False)) as (url, recorder):
        model = {"id": "scripted", "reasoning": True, "contextWindow": 131_072, "maxTokens": 16_384}
        provider = {"baseUrl": url, "api": api, "apiKey": "any", "models": [model]}
        config = tmp_path / ".pi" / "agent" / "models.json"
        config.parent.mkdir(parents=True)
        config.write_text(json.dumps({"providers": {"local": provider}}), encoding="utf-8")
        flags = ["--offline", "--model", "local/scripted", "--print"]
        done = run([pi, *flags, "Make made.txt"], tmp_path)
    assert (tmp_path / "made.txt").read_text() == "hi\n"
    assert done.stdout.strip() == "Hello!"
    assert len(recorder.of(path)) == 2


def test_aider_edits_a_file(tmp_path: Path) -> None:
    aider = command("aider", "aider")
    edit = "made.txt\n```\n<<<<<<< SEARCH\n=======\nhi\n>>>>>>> REPLACE\n```"
    with recorded(scripted(final(edit), loop=False)) as (url, _):
        where = ["--model", "openai/scripted", "--openai-api-base", url, "--openai-api-key", "any"]
        flags = ["--edit-format", "diff", "--no-git", "--yes-always", "--analytics-disable"]
        quiet = ["--no-check-update", "--no-show-model-warnings", "--no-show-release-notes"]
        done = run([aider, *where, *flags, *quiet, "--message", "Make made.txt"], tmp_path)
    assert (tmp_path / "made.txt").read_text() == "hi\n"
    assert "Let me think." in done.stdout, "aider shows the reasoning"
