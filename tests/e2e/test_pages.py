"""The blocks of the documentation that need a server, typed as they stand, except for the address and ids.

The server follows a script with a long answer. `tests/meta/test_blocks.py` checks all other blocks.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.doubles.commands import run
from tests.doubles.pages.blocks import (
    ADDRESS,
    RUN_ELSEWHERE,
    SHELLS,
    Block,
    blocks,
    commands,
    run_python,
    shared_names,
    words_of,
)
from tests.doubles.server_process import Served, serving

RUN = [each for each in blocks() if each.page not in RUN_ELSEWHERE and each.reason is None]
PYTHON = [each for each in RUN if each.language == "python" and not each.page.startswith("docs/clients/")]
OF_THE_SDK = [each for each in RUN if str(each).startswith("docs/clients/openai-sdk.md")]
CALLS = ("curl ", "gpt-oss-server trace ", "gpt-oss-server config")
ID = "resp_123"  # as the pages write it


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    script = tmp_path_factory.mktemp("script") / "script.json"
    text = "<|channel|>final<|message|>" + "So long. " * 40 + "<|return|>"
    script.write_text(json.dumps({"turns": [text]}), encoding="utf-8")
    with serving("--model", f"scripted:{script}", "--served-model-name", "tiny", "--python", "off") as served:
        yield served


@pytest.fixture(scope="module")
def response_id(served: Served) -> str:
    body = {"input": "Hi", "background": True}
    created: dict[str, Any] = httpx.post(f"{served.api}/responses", json=body, timeout=60).json()
    with httpx.stream("GET", f"{served.api}/responses/{created['id']}?stream=true", timeout=60) as events:
        assert "response.completed" in events.read().decode()
    return str(created["id"])


COMMANDS = [
    (block, command)
    for block in RUN
    if block.language in SHELLS
    for command in commands(block)
    if command.startswith(CALLS) and "https" not in command
]


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=str)
def test_the_command_succeeds(
    block: Block, command: str, served: Served, response_id: str, tmp_path: Path
) -> None:
    _, words = words_of(command.replace(ADDRESS, served.url).replace(ID, response_id))
    if words[:2] == ["gpt-oss-server", "trace"] and words[2] != "show":
        words += ["--url", served.url]
    made = tmp_path / "trace.json"
    if "trace.json" in words and "-o" not in words:
        made.write_bytes(httpx.get(f"{served.api}/responses/{response_id}/trace", timeout=60).content)
    if words[0] == "curl":
        words.insert(1, "--fail-with-body")
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    else:
        done = run(*words[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", [*PYTHON, *(b for b in OF_THE_SDK if b.language == "python")], ids=str)
def test_the_python_runs(block: Block, served: Served, response_id: str) -> None:
    if "server.crt" in block.code:
        pytest.skip("test_the_page_on_certificates runs it")
    client = OpenAI(base_url=served.api, api_key="any")
    with shared_names(client=client, response_id=response_id) as names, client:
        printed = run_python(block, served, names)
    if block.page == "docs/reference/python-api.md":
        shown = re.search(r"^# prints: (.*)\Z", block.code.rstrip(), re.MULTILINE | re.DOTALL)
        assert shown is not None, "the example has no line that states what it prints"
        assert printed.strip() == shown[1]


def test_the_page_on_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate is made, served and trusted by curl and by the SDK."""
    monkeypatch.chdir(tmp_path)
    [shell] = [each for each in RUN if each.code.startswith("openssl req")]
    [trusting] = [each for each in PYTHON if "server.crt" in each.code]
    make, serve, ask = commands(shell)
    subprocess.run(["bash", "-c", make], check=True, capture_output=True)
    with serving(*words_of(serve)[1][2:], "--python", "off") as served:
        local = ask.replace("https://127.0.0.1:8000", served.url).replace("curl", "curl --fail", 1)
        subprocess.run(["bash", "-c", local], check=True, capture_output=True)
        names: dict[str, Any] = {}
        exec(trusting.code.replace("https://127.0.0.1:8000", served.url), names)
        with names["client"] as client:
            assert [model.id for model in client.models.list()] == ["tiny"]
