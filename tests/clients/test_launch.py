"""`launch` with the unmodified clients, in a pseudo-terminal; the user's own files name another server."""

import json
import os
import subprocess
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.clients.running import COMMANDS, HELLO, THINK, call, command
from tests.doubles.commands import Screen, run, script, terminal
from tests.doubles.server_process import serving

pytestmark = pytest.mark.clients

ELSEWHERE = "http://127.0.0.1:9/v1"
CODEX = f"""\
model = "other"
model_provider = "other"
check_for_update_on_startup = false
[model_providers.other]
name = "other"
base_url = "{ELSEWHERE}"
"""
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+hi\n*** End Patch\n"
TITLE = {"when": "title generator", "text": "<|channel|>final<|message|>A title<|return|>"}
# What a client asks its terminal before it shows anything, and what one answers.
QUESTIONS = {
    "\x1b[6n": "\x1b[1;1R",
    "\x1b[c": "\x1b[?62c",
    "\x1b[?u": "\x1b[?0u",
    "\x1b]10;?": "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    "\x1b]11;?": "\x1b]11;rgb:0000/0000/0000\x1b\\",
}


@dataclass(frozen=True)
class Case:
    file: str  # the user's own, in the home
    settings: Any  # in it
    write: str | tuple[str, str, str]  # the call that makes a file: its text, or names of what it takes
    once: tuple[str, ...]  # words for one answer without questions
    talk: tuple[str, ...] = ()  # words for a conversation

    @property
    def text(self) -> str:
        return self.settings if isinstance(self.settings, str) else json.dumps(self.settings, indent=2)

    def made(self, path: Path) -> str:
        if isinstance(self.write, str):
            return self.write
        tool, name, content = self.write
        return call(tool, {name: str(path), content: "hi\n"})


CASES = {
    "codex": Case(
        ".codex/config.toml",
        CODEX,
        f"{THINK}<|channel|>commentary to=functions.apply_patch<|message|>{PATCH}<|call|>",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Make made.txt"),
        ("Say hello",),
    ),
    "claude": Case(
        ".claude/settings.json",
        {"model": "sonnet", "env": {"ANTHROPIC_BASE_URL": ELSEWHERE, "ANTHROPIC_AUTH_TOKEN": "other"}},
        ("Write", "file_path", "content"),
        ("-p", "Make made.txt", "--allowedTools", "Write"),
        ("Say hello",),
    ),
    "opencode": Case(
        ".config/opencode/opencode.json",
        {
            "$schema": "https://opencode.ai/config.json",  # opencode itself would add it
            "model": "other/other",
            "autoupdate": False,
            "permission": {"edit": "allow"},
        },
        ("write", "filePath", "content"),
        ("run", "Make made.txt"),
        ("--prompt", "Say hello"),
    ),
    "qwen": Case(
        ".qwen/settings.json",
        {"$version": 4, "model": {"name": "other"}, "security": {"auth": {"baseUrl": ELSEWHERE}}},
        ("write_file", "file_path", "content"),
        ("--yolo", "Make made.txt"),
    ),
}


class Answering(Screen):
    def read(self) -> str:
        text = super().read()
        for question, answer in QUESTIONS.items():
            if question in text:
                self.press(answer)
        return text


@pytest.fixture(params=CASES)
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Its name. The user's home is a folder that has only their own file."""
    name: str = request.param
    command(name)
    case, home = CASES[name], tmp_path / "home"
    (home / case.file).parent.mkdir(parents=True)
    (home / case.file).write_text(case.text)
    claude = {"hasCompletedOnboarding": True, "projects": {str(tmp_path): {"hasTrustDialogAccepted": True}}}
    (home / ".claude.json").write_text(json.dumps(claude))
    monkeypatch.setenv("PATH", f"{COMMANDS}{os.pathsep}{os.environ['PATH']}")
    for variable, value in {"HOME": home, "PWD": tmp_path, "XDG_STATE_HOME": home / "state"}.items():
        monkeypatch.setenv(variable, str(value))
    for flag in ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD"):
        monkeypatch.setenv(f"OPENCODE_DISABLE_{flag}", "1")
    return name


def test_a_client_writes_a_file_and_the_users_own_stays(client: str, tmp_path: Path) -> None:
    case = CASES[client]
    model = script(tmp_path, TITLE, case.made(tmp_path / "made.txt"), HELLO)
    with terminal(client, "-m", model, "--", *case.once, command="launch", folder=tmp_path) as screen:
        screen.shows("Hello!")
        screen.rest(1)
        assert screen.process.wait(60) == 0
    assert (tmp_path / "made.txt").read_text() == "hi\n"
    assert (tmp_path / "home" / case.file).read_text() == case.text


def test_the_script_that_config_prints_runs_a_client(client: str, tmp_path: Path) -> None:
    case = CASES[client]
    model = script(tmp_path, TITLE, case.made(tmp_path / "made.txt"), HELLO)
    with serving("--model", model, "--context", "32768") as served:
        printed = run("launch", client, "--url", served.url, "--config", "--", *case.once)
        assert "The context of scripted is 32,768 tokens, which coding agents fill soon." in printed.stderr
        command = ["sh", "-ec", printed.stdout]
        done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Hello!" in done.stdout
    assert (tmp_path / "made.txt").read_text() == "hi\n"
    assert (tmp_path / "home" / case.file).read_text() == case.text


@pytest.mark.parametrize("client", [name for name, case in CASES.items() if case.talk], indirect=True)
def test_a_conversation_which_ctrl_c_ends(client: str, tmp_path: Path) -> None:
    model = script(tmp_path, TITLE, HELLO)
    words = ("-m", model, "--", *CASES[client].talk)
    with terminal(client, *words, command="launch", folder=tmp_path) as plain:
        termios.tcsetwinsize(plain.controller, (40, 100))
        screen = Answering(plain.controller, plain.process)
        screen.shows("Hello!")
        end = time.monotonic() + 60
        while screen.process.poll() is None:
            assert time.monotonic() < end
            screen.press("\x03")
            screen.rest(0.3)  # Claude Code wants a second one soon
        assert screen.process.wait() in (0, 130)  # 130: a slow client reads one more while it ends
