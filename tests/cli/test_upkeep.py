"""Commands that look after a server: `doctor` does the real thing, `store` looks and deletes."""

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.app import create_app
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.cli.doctor import machine, surroundings
from gpt_oss_server.cli.doctor.finding import Check, Finding, State, findings, ok
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import conversations_of
from tests.doubles.commands import ANSWER, run, script
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.tools import echo_server

OK, NOTE, PROBLEM = State
UNSEARCHABLE = {"browser": "searxng:http://127.0.0.1:1", "allow_private_hosts": True}
# A check, its settings ({folder} is one with a page), the state, and what the sentence or the advice holds.
CASES: dict[str, tuple[Check, dict[str, Any], State, str]] = {
    "a missing model": (machine.model, {"model": "scripted:gone.json"}, PROBLEM, "gone.json"),
    "the embedded model": (machine.model, {"device": "cpu"}, OK, "tiny generated 8 tokens"),
    "a model of the hub": (machine.model, {"model": "openai/gpt-oss-9b"}, NOTE, "pull openai/gpt-oss-9b"),
    "torch": (machine.torch, {}, OK, "computes here"),
    "memory": (surroundings.store, {"store": "memory"}, OK, "stored, read and deleted"),
    "SQLite": (surroundings.store, {"store": "sqlite:{folder}/store.db"}, OK, "stored, read and deleted"),
    "no Postgres": (surroundings.store, {"store": "postgres://me:s3cret@127.0.0.1:1/db"}, PROBLEM, "refused"),
    "no browser": (surroundings.browser, {"browser": "off"}, NOTE, "The browser tool is off."),
    "no embeddings": (
        surroundings.embeddings,
        {"embeddings": "http://127.0.0.1:1", "embeddings_key": "s3cret"},
        PROBLEM,
        "no connection",
    ),
    "a browser": (surroundings.browser, {"browser": "local:{folder}"}, OK, "A search was answered."),
    "no folder": (surroundings.browser, {"browser": "local:/no/such/folder"}, PROBLEM, "/no/such/folder"),
    "no search": (surroundings.browser, UNSEARCHABLE, PROBLEM, "search failed"),
    "a sandbox": (surroundings.sandbox("unsafe-local"), {"python": "unsafe-local"}, OK, "A cell of python"),
    "no key, but no network": (surroundings.keys, {}, OK, "only this machine"),
    "no key": (surroundings.keys, {"host": "0.0.0.0"}, NOTE, "--api-key-file"),
    "no file of keys": (surroundings.keys, {"api_key_file": "{folder}/gone"}, PROBLEM, "cannot be read"),
    "a wrong key": (surroundings.keys, {"api_key_file": "{folder}/wrong"}, PROBLEM, "line 1: rpm must be"),
    "no certificate": (surroundings.tls, {}, NOTE, "plain HTTP"),
    "a free port": (surroundings.port, {"port": 0}, OK, "can listen on 127.0.0.1"),
    "no MCP server": (surroundings.mcp, {"mcp": ("mine=/no/such/command",)}, PROBLEM, "'mine' was not found"),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_check_does_the_real_thing(case: str, tmp_path: Path) -> None:
    check, fields, state, text = CASES[case]
    (tmp_path / "page.md").write_text("# gpt-oss\n\nAn open model.\n")
    (tmp_path / "wrong").write_text("sk-one name=shop rpm=many\n")
    texts = {name: text.format(folder=tmp_path) for name, text in fields.items() if isinstance(text, str)}
    [(_, finding)] = [each async for each in findings({"it": check}, Settings(**{**fields, **texts}))]
    assert finding.state is state
    assert text in f"{finding.sentence} {finding.advice}"
    assert "s3cret" not in finding.sentence


async def test_a_gpu_is_needed_only_where_the_settings_name_it() -> None:
    import torch

    states = [(await machine.gpu(Settings(device=device))).state for device in ("auto", "cuda")]
    assert states == ([OK, OK] if torch.cuda.is_available() else [NOTE, PROBLEM])


async def test_the_cache_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "new" / "hub"))
    assert str(tmp_path) in (await machine.model_cache(Settings())).sentence
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "file" / "hub"))
    finding = await machine.model_cache(Settings())
    assert (finding.state, "cannot be written" in finding.sentence) == (NOTE, True)
    assert (await machine.model_cache(Settings(model="openai/gpt-oss-20b"))).state is PROBLEM


async def test_what_does_not_work_is_a_problem_only_if_it_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    for settings, state in ((Settings(), NOTE), (Settings(python="docker"), PROBLEM)):
        finding = await surroundings.sandbox("docker")(settings)
        assert (finding.state, bool(finding.advice)) == (state, True)
    monkeypatch.setenv("https_proxy", "http://me:s3cret@127.0.0.1:1")
    for model, state in (("tiny", NOTE), ("openai/gpt-oss-20b", PROBLEM)):
        finding = await surroundings.network(Settings(model=model))
        assert (finding.state, "through the proxy" in finding.sentence) == (state, True)
        assert "s3cret" not in finding.sentence


async def test_keys_are_counted_and_others_must_not_read_them(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("sk-one name=shop\nsk-two name=shop\nsk-three name=batch\n")
    file.chmod(0o644)
    readable = await surroundings.keys(Settings(api_key_file=str(file)))
    assert (readable.state, readable.advice) == (NOTE, f"chmod 600 {file}")
    file.chmod(0o600)
    assert await surroundings.keys(Settings(api_key_file=str(file))) == ok("3 keys of 2 owners.")


async def test_an_mcp_server_lists_its_tools() -> None:
    with echo_server.serving() as url:
        finding = await surroundings.mcp(Settings(mcp=(f"echo={url}",)))
    assert (finding.state, "echo (" in finding.sentence) == (OK, True)


async def test_checks_that_hang_or_break_hide_nothing_and_keep_their_order() -> None:
    async def hangs(settings: Settings) -> Finding:
        await asyncio.Event().wait()
        raise AssertionError

    async def breaks(settings: Settings) -> Finding:
        raise KeyError("x")

    async def works(settings: Settings) -> Finding:
        return ok("fine")

    checks: dict[str, Check] = {"first": hangs, "second": breaks, "third": works}
    examined = [entry async for entry in findings(checks, Settings(), seconds=0.05)]
    states = {"first": PROBLEM, "second": PROBLEM, "third": OK}
    assert [(name, finding.state) for name, finding in examined] == list(states.items())
    assert "did not end within" in examined[0][1].sentence
    assert "KeyError" in examined[1][1].sentence


@pytest.mark.slow
def test_the_command_shows_every_check_and_its_code_is_whether_all_works(tmp_path: Path) -> None:
    words = ("doctor", "--model", script(tmp_path, ANSWER), "--python", "off", "--port")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(*words, port, "--json", timeout=180)
    shown: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, shown["ok"]) == (1, False)
    problems = {check["check"]: check["found"] for check in shown["checks"] if check["state"] == "problem"}
    assert list(problems) == ["port"]
    assert f"Port {port}" in problems["port"]
    assert {"python", "torch", "gpu", "model", "store", "network", "browser"} <= {
        check["check"] for check in shown["checks"]
    }
    done = run(*words, "0", timeout=180, fresh=True)
    assert (done.returncode, "Everything that these settings need works." in done.stdout) == (0, True)


FINAL = "<|channel|>final<|message|>Fine.<|return|>"


@pytest.fixture
def filled(tmp_path: Path, encoding: Encoding) -> tuple[str, dict[str, str]]:
    """A store with two turns, the first of which is deleted, and a conversation of two."""
    place, ids = f"sqlite:{tmp_path / 'one.sqlite'}", {}
    engine = ReplayEngine(encoding.encode_special(FINAL))

    async def fill() -> None:
        service: ResponsesService = create_app(engine, Settings(store=place)).state.service
        first = await (await service.start(LOCAL, {"input": "one"})).wait()
        again = {"input": "two", "previous_response_id": first["id"]}
        second = await (await service.start(LOCAL, again)).wait()
        await service.stored(LOCAL).delete(first["id"])
        made = await conversations_of(service).create({"metadata": {"topic": "demo"}})
        for text in ("three", "four"):
            await (await service.start(LOCAL, {"input": text, "conversation": made["id"]})).wait()
        ids.update(response=second["id"], conversation=made["id"])
        await service.close()

    asyncio.run(fill())
    return place, ids


def test_single_entries_are_deleted(filled: tuple[str, dict[str, str]]) -> None:
    place, ids = filled
    gone = run("store", "delete", ids["response"], ids["conversation"], "--store", place)
    assert (gone.returncode, gone.stderr) == (0, "")
    missing = run("store", "delete", ids["response"], "--store", place)
    assert missing.returncode == 1
    assert f"no response or conversation '{ids['response']}'" in missing.stderr
    left = run("store", "stat", "--store", place).stdout
    assert "conversations          0" in left
    assert re.search(r"^traces +2 ", left, re.MULTILINE), "the trace goes with its response"


def test_stat_counts_and_vacuum_keeps_the_bounds(filled: tuple[str, dict[str, str]]) -> None:
    place, _ = filled
    before = run("store", "stat", "--store", place, fresh=True).stdout
    assert "responses              3\n" in before
    assert "conversations          1\n" in before
    assert "turns                  8\n" in before  # 4 of responses, and 4 parts of the conversation
    assert re.search(r"^traces +3 \(\d\.\d KiB\)$", before, re.MULTILINE)
    done = run("store", "vacuum", "--store", place, "--store-max-responses", "1")
    assert done.returncode == 0, done.stderr
    after = run("store", "stat", "--store", place).stdout
    assert "responses              1\n" in after
    assert re.search(r"^traces +1 ", after, re.MULTILINE)
    bounded = run("store", "vacuum", "--store", place, "--trace-max-bytes", "1")
    assert bounded.returncode == 0, bounded.stderr
    assert re.search(r"^traces +0 ", run("store", "stat", "--store", place).stdout, re.MULTILINE)
