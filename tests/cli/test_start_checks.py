"""What `serve` reports before it loads a model, in place of at the first request."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpt_oss_server.models.limits import least_context
from gpt_oss_server.settings import Settings
from tests.doubles.commands import ANSWER, run, script
from tests.doubles.server_process import serving

NEVER = ("--model", "./never/looked/at", "--port", "0")


def test_docker_that_is_missing_is_reported_at_the_start(tmp_path: Path) -> None:
    done = run("serve", *NEVER, "--python", "docker", env={"PATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "--python docker cannot be used here. The python tool's docker sandbox needs"
    )
    assert "--python off" in done.stderr


def test_without_any_sandbox_the_default_serves_everything_else(tmp_path: Path) -> None:
    with serving("--model", script(tmp_path, ANSWER), env={"PATH": str(tmp_path)}) as served:
        assert "Model    scripted" in served.greeting


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("no-such-command-anywhere", "The command of the MCP server 'notes' was not found."),
        (f"{sys.executable} -c pass", "--mcp notes: "),
    ],
)
def test_a_bad_command_of_a_tool_server_is_reported_at_the_start(command: str, sentence: str) -> None:
    done = run("serve", *NEVER, "--mcp", f"notes={command}")
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tool_server_s_url_may_answer_later(tmp_path: Path) -> None:
    with serving("--model", script(tmp_path, ANSWER), "--mcp", "notes=http://127.0.0.1:9/mcp") as served:
        assert "--mcp notes: " in served.greeting
        assert "Requests that need it will try again." in served.greeting


@pytest.mark.parametrize("key", ["~nobody-of-this-name/key", "{folder}", "/proc/never/key"])
def test_a_sealing_key_that_cannot_be_used_is_an_error_of_its_setting(key: str, tmp_path: Path) -> None:
    done = run("serve", *NEVER, "--sealing-key-file", key.format(folder=tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("--sealing-key-file: ")
    assert "model" not in done.stderr


def test_a_context_in_which_nothing_can_be_answered_is_refused_before_the_model_is_loaded() -> None:
    done = run("serve", *NEVER, "--context", "5")
    least = least_context(Settings())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("A context of 5 tokens is too short to answer anything: the system ")
    assert f"Give --context {least} or more" in done.stderr


def test_an_identity_that_leaves_no_room_in_the_models_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(f'identity = "{"So be it. " * 40_000}"\n', encoding="utf-8")
    flags = ("--config", str(tmp_path / "server.toml"), "--port", "0")
    done = run("serve", script(tmp_path, ANSWER), *flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("A context of 131072 tokens is too short to answer anything")
    assert "the system message with its --identity" in done.stderr
