"""The commands that look at a store, move it and delete from it."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.app import create_app
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import conversations_of
from tests.doubles.commands import run
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import scripted, serving

FINAL = "<|channel|>final<|message|>Fine.<|return|>"


def served(
    store: str, encoding: Encoding, work: Callable[[ResponsesService], Coroutine[Any, Any, None]]
) -> list[str]:
    """Runs `work` on a server with this store, and returns the prompts that its engine read."""
    engine = ReplayEngine(encoding.encode_special(FINAL))

    async def serve() -> None:
        service: ResponsesService = create_app(engine, Settings(store=store)).state.service
        try:
            await work(service)
        finally:
            await service.close()

    asyncio.run(serve())
    return [encoding.decode(prompt) for prompt in engine.prompts]


def trace_of(store: str, response_id: str) -> dict[str, Any]:
    """The trace that a server with this store returns."""
    with serving(scripted(FINAL), Settings(store=store)) as url:
        answer = httpx.get(f"{url}/responses/{response_id}/trace", timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.fixture
def filled(tmp_path: Path, encoding: Encoding) -> tuple[str, dict[str, str]]:
    """A store with two turns, the first of which is deleted, and a conversation of two."""
    place, ids = f"sqlite:{tmp_path / 'one.sqlite'}", {}

    async def fill(service: ResponsesService) -> None:
        first = await (await service.start(LOCAL, {"input": "one"})).wait()
        again = {"input": "two", "previous_response_id": first["id"]}
        second = await (await service.start(LOCAL, again)).wait()
        await service.stored(LOCAL).delete(first["id"])
        made = await conversations_of(service).create({"metadata": {"topic": "demo"}})
        for text in ("three", "four"):
            await (await service.start(LOCAL, {"input": text, "conversation": made["id"]})).wait()
        ids.update(response=second["id"], conversation=made["id"])

    served(place, encoding, fill)
    return place, ids


def test_what_is_exported_and_imported_continues_with_the_same_prompts(
    filled: tuple[str, dict[str, str]], tmp_path: Path, encoding: Encoding
) -> None:
    place, ids = filled
    exported = run("store", "export", "--store", place, fresh=True)
    assert exported.returncode == 0, exported.stderr
    other = f"sqlite:{tmp_path / 'two.sqlite'}"
    imported = run("store", "import", "--store", other, stdin=exported.stdout)
    assert imported.returncode == 0, imported.stderr
    assert "Imported 3 responses and 1 conversations" in imported.stderr

    async def continue_both(service: ResponsesService) -> None:
        await (await service.start(LOCAL, {"input": "?", "previous_response_id": ids["response"]})).wait()
        await (await service.start(LOCAL, {"input": "?", "conversation": ids["conversation"]})).wait()
        kept = await conversations_of(service).retrieve(ids["conversation"])
        assert kept["metadata"] == {"topic": "demo"}

    prompts = served(other, encoding, continue_both)
    assert prompts == served(place, encoding, continue_both)
    assert [text in prompts[0] for text in ("one", "two", "three")] == [True, True, False]
    assert [text in prompts[1] for text in ("two", "three", "four")] == [False, True, True]
    assert trace_of(other, ids["response"]) == trace_of(place, ids["response"])
    again = run("store", "import", "--store", other, stdin=exported.stdout)
    assert "Imported 0 responses and 0 conversations; 4 exist already" in again.stderr


def test_single_entries_are_exported_and_deleted(filled: tuple[str, dict[str, str]]) -> None:
    place, ids = filled
    exported = run("store", "export", ids["response"], "--store", place)
    records = [json.loads(line) for line in exported.stdout.splitlines()]
    assert [next(iter(record)) for record in records] == ["format", "link", "link", "response"]
    assert records[-1]["response"]["id"] == ids["response"]
    gone = run("store", "delete", ids["response"], ids["conversation"], "--store", place)
    assert (gone.returncode, gone.stderr) == (0, "")
    missing = run("store", "export", ids["response"], "--store", place)
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
