"""The memory of a key's python, over HTTP: its own kernels give way, and its files are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving
from tests.tools.python.conftest import needs_bubblewrap

GROW = (
    "<|channel|>analysis to=python code<|message|>"
    # Memory is counted ten times a second.
    "import time\nkept = bytearray(b'x') * (200 << 20)\ntime.sleep(2)<|call|>"
)
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
MIB = 1024 * 1024


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    needs_bubblewrap()
    (tmp_path / "keys").write_text("sk-small memory=150MiB\nsk-default\nsk-free memory=none\n")
    settings = Settings(
        api_key_file=str(tmp_path / "keys"),
        python="bubblewrap",
        browser="off",
        key_python_memory=170 * MIB,
        max_body_bytes=64 * MIB,
    )
    with serving(scripted(GROW, ANSWER, loop=True), settings) as base:
        yield base


def post(url: str, key: str, path: str, **sent: Any) -> httpx.Response:
    return httpx.post(url + path, headers={"Authorization": f"Bearer {key}"}, timeout=120, **sent)


def test_files_beyond_a_keys_memory_get_429_and_those_of_another_key_do_not(url: str) -> None:
    answers: dict[str, list[httpx.Response]] = {}
    for key in ("sk-small", "sk-free"):
        container = post(url, key, "/containers", json={"name": "data"}).json()["id"]
        files = f"/containers/{container}/files"
        sent = ({"file": (f"{number}", b"x" * (20 * MIB))} for number in range(8))
        sent = ({"file": (f"{number}", b"x" * (20 * MIB))} for number in range(8))
        answers[key] = [post(url, key, files, files=each) for each in sent]
    assert {answer.status_code for answer in answers["sk-free"]} == {200}
    assert answers["sk-small"][0].status_code == 200
    refused = answers["sk-small"][-1]
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_containers")
    assert "conversations of this client hold 150 MiB of memory" in refused.json()["error"]["message"]


@pytest.mark.parametrize(("key", "limit"), [("sk-small", 150), ("sk-default", 170), ("sk-free", None)])
def test_the_model_learns_why_its_kernel_was_killed(url: str, key: str, limit: int | None) -> None:
    body = {"input": "Grow.", "tools": [CODE], "include": ["code_interpreter_call.outputs"]}
    answer = post(url, key, "/responses", json=body).json()
    [call] = [item for item in answer["output"] if item["type"] == "code_interpreter_call"]
    if limit is None:
        assert call["status"] == "completed"
    else:
        assert call["status"] == "failed"
        assert f"{limit} MiB of memory" in call["outputs"][0]["logs"]
