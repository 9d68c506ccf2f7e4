"""`doctor`: each check does the real thing, and a problem is what these settings need."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.cli.doctor import machine, surroundings
from gpt_oss_server.cli.doctor.finding import Check, Finding, State, findings, ok
from gpt_oss_server.settings import Settings
from tests.doubles.commands import ANSWER, run, script
from tests.doubles.ops.certificates import DAY, write_certificate
from tests.doubles.tools import echo_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_scripted_model_generates_and_a_missing_one_does_not(tmp_path: Path) -> None:
    found = await machine.model(Settings(model=script(tmp_path, ANSWER)))
    assert (found.state, "generated" in found.sentence) == (State.OK, True)
    missing = await machine.model(Settings(model=f"scripted:{tmp_path / 'gone.json'}"))
    assert (missing.state, "gone.json" in missing.sentence) == (State.PROBLEM, True)


async def test_the_embedded_model_generates() -> None:
    found = await machine.model(Settings(device="cpu"))
    assert found.state is State.OK
    assert found.sentence.startswith("tiny generated 8 tokens")


async def test_a_model_of_the_hub_that_is_not_here_is_no_problem_and_says_how_to_fetch_it() -> None:
    found = await machine.model(Settings(model="openai/gpt-oss-999b"))
    assert found.state is State.NOTE
    assert "gpt-oss-server pull openai/gpt-oss-999b" in found.advice


async def test_torch_computes_and_a_gpu_is_needed_only_where_it_is_asked_for() -> None:
    assert (await machine.torch(Settings())).state is State.OK
    import torch

    if torch.cuda.is_available():
        assert (await machine.gpu(Settings())).state is State.OK
        return
    assert (await machine.gpu(Settings())).state is State.NOTE
    assert (await machine.gpu(Settings(device="cuda"))).state is State.PROBLEM


async def test_the_cache_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "new" / "hub"))
    assert str(tmp_path) in (await machine.model_cache(Settings())).sentence
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    found = await machine.model_cache(Settings())
    assert (found.state, "cannot be written" in found.sentence) == (State.NOTE, True)
    assert (await machine.model_cache(Settings(model="openai/gpt-oss-20b"))).state is State.PROBLEM


async def test_a_store_keeps_a_response_for_a_moment(tmp_path: Path) -> None:
    for place in ("memory", f"sqlite:{tmp_path / 'store.db'}"):
        assert (await surroundings.store(Settings(store=place))).state is State.OK
    found = await surroundings.store(Settings(store="postgres://me:s3cret@127.0.0.1:1/db"))
    assert found.state is State.PROBLEM
    assert "s3cret" not in found.sentence


async def test_a_browser_searches_a_folder(tmp_path: Path) -> None:
    assert (await surroundings.browser(Settings(browser="off"))).state is State.NOTE
    (tmp_path / "page.md").write_text("# gpt-oss\n\nAn open model.\n")
    assert (await surroundings.browser(Settings(browser=f"local:{tmp_path}"))).state is State.OK
    assert (await surroundings.browser(Settings(browser="local:/no/such/folder"))).state is State.PROBLEM
    unanswered = await surroundings.browser(
        Settings(browser="searxng:http://127.0.0.1:1", allow_private_hosts=True)
    )
    assert (unanswered.state, "search failed" in unanswered.sentence) == (State.PROBLEM, True)


async def test_a_sandbox_runs_a_cell() -> None:
    found = await surroundings.sandbox("unsafe-local")(Settings(python="unsafe-local"))
    assert (found.state, found.sentence) == (State.OK, "A cell of python ran in a sandbox of its own.")


async def test_a_sandbox_that_does_not_work_is_a_problem_only_if_it_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for settings, state in ((Settings(), State.NOTE), (Settings(python="docker"), State.PROBLEM)):
        found = await surroundings.sandbox("docker")(settings)
        assert (found.state, bool(found.advice)) == (state, True)


async def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:s3cret@127.0.0.1:1")
    for model, state in (("tiny", State.NOTE), ("openai/gpt-oss-20b", State.PROBLEM)):
        found = await surroundings.network(Settings(model=model))
        assert (found.state, "through the proxy" in found.sentence) == (state, True)
        assert "s3cret" not in found.sentence


async def test_the_keys_are_read_and_missed_where_others_can_reach_the_server(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    settings = Settings(api_key_file=str(file))
    absent = await surroundings.keys(settings)
    assert (absent.state, "cannot be read" in absent.sentence) == (State.PROBLEM, True)
    file.write_text("sk-one name=shop rpm=many\n")
    wrong = await surroundings.keys(settings)
    assert (wrong.state, "line 1: rpm must be" in wrong.sentence) == (State.PROBLEM, True)
    file.write_text("sk-one name=shop\nsk-two name=shop\nsk-three name=batch\n")
    file.chmod(0o644)
    readable = await surroundings.keys(settings)
    assert (readable.state, readable.advice) == (State.NOTE, f"chmod 600 {file}")
    file.chmod(0o600)
    assert await surroundings.keys(settings) == ok("3 keys of 2 owners.")
    assert (await surroundings.keys(Settings())).state is State.OK
    exposed = await surroundings.keys(Settings(host="0.0.0.0"))
    assert (exposed.state, "--api-key-file" in exposed.advice) == (State.NOTE, True)


async def test_a_certificate_is_checked(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    assert (await surroundings.tls(Settings())).state is State.NOTE
    assert (await surroundings.tls(Settings(tls_cert=cert, tls_key=key))).state is State.OK
    cert, key = write_certificate(tmp_path, begins=-9 * DAY, ends=-DAY)
    assert "expired" in (await surroundings.tls(Settings(tls_cert=cert, tls_key=key))).sentence


async def test_a_port_in_use_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = await surroundings.port(Settings(port=port))
        assert (found.state, f"Port {port}" in found.sentence) == (State.PROBLEM, True)
    assert (await surroundings.port(Settings(port=0))).state is State.OK


async def test_an_mcp_server_that_does_not_start_is_a_problem() -> None:
    found = await surroundings.mcp(Settings(mcp=("mine=/no/such/command",)))
    assert (found.state, "'mine' was not found" in found.sentence) == (State.PROBLEM, True)


async def test_an_mcp_server_lists_its_tools() -> None:
    with echo_server.serving() as url:
        found = await surroundings.mcp(Settings(mcp=(f"echo={url}",)))
    assert found.state is State.OK
    assert "echo (" in found.sentence


async def test_checks_that_hang_or_break_hide_nothing_and_keep_their_order() -> None:
    async def hangs(settings: Settings) -> Finding:
        await asyncio.sleep(60)
        raise AssertionError

    async def breaks(settings: Settings) -> Finding:
        raise KeyError("x")

    async def works(settings: Settings) -> Finding:
        return ok("fine")

    checks: dict[str, Check] = {"first": hangs, "second": breaks, "third": works}
    found = [examined async for examined in findings(checks, Settings(), seconds=0.05)]
    assert [(name, finding.state) for name, finding in found] == [
        ("first", State.PROBLEM),
        ("second", State.PROBLEM),
        ("third", State.OK),
    ]
    assert "did not end within" in found[0][1].sentence
    assert "KeyError" in found[1][1].sentence


@pytest.mark.slow
def test_the_command_shows_every_check_and_its_code_says_whether_all_works(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("doctor", "--model", model, "--python", "off", "--port", str(taken.getsockname()[1]))
        done = run(*words, "--json", timeout=180)
    shown: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, shown["ok"]) == (1, False)
    problems = [each["check"] for each in shown["checks"] if each["state"] == "problem"]
    assert problems == ["port"]
    assert {"python", "torch", "gpu", "model", "store", "network", "browser"} <= {
        each["check"] for each in shown["checks"]
    }
    done = run(*words[:-2], "--port", "0", timeout=180, fresh=True)
    assert (done.returncode, "Everything that these settings need works." in done.stdout) == (0, True)
