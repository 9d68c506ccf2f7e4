"""A background response whose process stops, at any point, is the same as one that is never disturbed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import inference.backends.scripted
from gpt_oss_server.apis.responses.continuing import Blueprint
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Append, StoredResponse
from gpt_oss_server.stores.events import NO_RECORDS, Continuation, Records
from gpt_oss_server.stores.kinds.further import stores_on
from gpt_oss_server.stores.sealing import server_sealer
from gpt_oss_server.stores.sql.events import EventLog, EventLogs, Held
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from gpt_oss_server.toolset.offered import ToolsetMaker
from inference.engine import Step
from tests.doubles.apis.asking import conversations_of, responses_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.doubles.waiting import until, until_found

NOW = 1_800_000_000.0


@dataclass
class Appended:
    """What a run wrote to its log, append by append."""

    run_id: str = ""
    continuation: Continuation | None = None
    batches: list[tuple[int, list[bytes], Records]] = field(default_factory=list)


class RecordingLogs(EventLogs):
    """Logs without linger that also show what is written to them: one append for each batch of events."""

    linger = 0.0
    appended = Appended()

    async def begin(
        self, run_id: str, continuation: Continuation | None = None, *, most: int | None = None
    ) -> EventLog:
        self.appended = Appended(run_id, continuation)
        return await super().begin(run_id, continuation, most=most)

    async def append(
        self, run_id: str, first: int, events: Sequence[bytes], records: Records = NO_RECORDS
    ) -> bool:
        kept = Records(records.first, list(records.added))
        self.appended.batches.append((first, list(events), kept))
        return await super().append(run_id, first, events, records)


class Process:
    """A server over a file of SQLite, in this process but with a name of its own."""

    def __init__(self, path: Path, engine: Any, encoding: Encoding, name: str, **settings: Any) -> None:
        database, held = SqliteDatabase(path), Held()
        self.logs = RecordingLogs(database, held, Replica("elsewhere", 1, name), lease=600)
        given = Settings(python="off", **settings)
        stores, store = stores_on(database, given, server_sealer(None)), SqlStore(database, guard=held.guard)
        self.stores = replace(stores, responses=store, events=self.logs, claims=self.logs)
        self.service: ResponsesService = responses_service(
            engine, given, encoding=encoding, stores=self.stores, clock=lambda: NOW, tools=ToolsetMaker(given)
        )

    async def run_to_its_end(self, **body: Any) -> tuple[Appended, list[dict[str, Any]]]:
        run = await self.service.start(LOCAL, {"input": "Hi", "background": True, **body})
        log = await self.service.run_in_background(run)
        events = [event async for batch in log.read() for event in batch]
        return self.logs.appended, parsed(events)

    async def dies_after(self, appended: Appended, batches: int) -> None:
        """Leaves a run as a process leaves it that dies after so many appends."""
        await EventLogs.begin(self.logs, appended.run_id, appended.continuation)
        for batch in appended.batches[:batches]:
            await EventLogs.append(self.logs, appended.run_id, *batch)
        await self.logs.database.write(lambda tx: tx.run("UPDATE runs SET lease_until = 0"))

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        log = await self.logs.open(run_id)
        return parsed([event async for batch in log.read() for event in batch])

    async def takes_over(self) -> None:
        """Continues what can be claimed, to its end."""
        service = self.service
        service.continuing.start()

        async def running() -> int:
            return len(service.background._running)

        await service.continuing.look()
        await until_found(running, lambda count: not count)

    async def close(self) -> None:
        await self.service.close()


def parsed(events: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(event.partition(b"data: ")[2]) for event in events]


Making = Callable[..., Process]


LAST = r"((?!<\|start\|>)[\s\S])*<\|start\|>assistant$"  # the prompt's last message begins with …
SEARCH = (
    "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant"
    '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
)
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
ANSWER = "<|channel|>final<|message|>It is deep【1†L0-L2】. 東京🙂!<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'


def engine(**options: Any) -> Any:
    """The last message of the prompt determines the turn, so that every process has the same script."""
    turns = [
        {"when": r"browser\.search to=" + LAST, "text": OPEN},
        {"when": r"browser\.open to=" + LAST, "text": ANSWER},
        {"when": "a call" + LAST, "text": CALL},
        {"when": "search" + LAST, "text": SEARCH},
        {"when": "Hi", "text": "<|channel|>final<|message|>Hello, you there!<|return|>"},
    ]
    return scripted(*turns, **options)


@pytest.fixture(autouse=True)
def _one_token_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each counts tokens of a prediction, as an engine that drafts does."""
    monkeypatch.setattr(inference.backends.scripted, "TOKENS_PER_STEP", 1)
    monkeypatch.setattr(inference.backends.scripted, "Step", partial(Step, accepted=1, rejected=2))


async def continued(
    making: Making, appended: Appended, batches: int, file: str = "second", **settings: Any
) -> Process:
    """The process that has continued a run whose own stopped after these appends."""
    await making(file, "dead").dies_after(appended, batches)
    process = making(file, "second", **settings)
    await process.takes_over()
    return process


async def forget_runs(process: Process) -> None:
    await process.logs.database.write(lambda tx: tx.run("DELETE FROM runs") + tx.run("DELETE FROM events"))


@pytest.fixture
async def making(tmp_path: Path, encoding: Encoding) -> AsyncIterator[Making]:
    made: list[Process] = []
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")

    def make(file: str, name: str, **settings: Any) -> Process:
        given = {"browser": f"local:{tmp_path / 'pages'}", **settings}
        made.append(Process(tmp_path / file, engine(), encoding, name, **given))
        return made[-1]

    yield make
    for process in made:
        await process.close()


SEARCHES: dict[str, Any] = {"input": "search", "tools": [{"type": "web_search"}]}
BODIES: dict[str, dict[str, Any]] = {
    "text": {"input": "Hi"},
    "call": {"input": "a call", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
    "tools": {**SEARCHES, "include": ["web_search_call.action.sources"]},
    "scores": {"input": "Hi", "top_logprobs": 2, "include": ["message.output_text.logprobs"]},
    "metadata": {"input": "Hi", "metadata": {"debug": "1"}, "instructions": "Be brief."},
}


@pytest.mark.parametrize("kind", BODIES)
async def test_it_is_continued_from_every_point(making: Making, kind: str) -> None:
    first = making("first", "first")
    appended, events = await first.run_to_its_end(**BODIES[kind])
    response = check_stream(events)
    assert response["status"] == "completed"
    assert response["usage"]["output_tokens_details"]["accepted_prediction_tokens"] > 4
    count = len(appended.batches)
    assert count > 4
    undisturbed = await first.stores.responses.history(appended.run_id)
    for at in range(count + 1):
        second = await continued(making, appended, at, f"second-{at}")
        assert await second.events(appended.run_id) == events, f"after {at} of {count} appends"
        assert (await second.service.stored(LOCAL).retrieve(appended.run_id)).response == response
        if not at % 5:
            history = await second.stores.responses.history(appended.run_id)
            assert history.segments == undisturbed.segments


async def test_it_is_continued_again_and_again(making: Making) -> None:
    appended, events = await making("first", "first").run_to_its_end(**SEARCHES)
    await making("again", "dead").dies_after(appended, 2)
    for attempt in range(2):
        process = making("again", f"attempt-{attempt}")
        claimed = await process.logs.claim()
        run = await process.service.continuing.build(claimed)
        process.service.background.go_on(run, claimed)
        await asyncio.sleep(0)
        await process.service.background.hand_over()
    last = making("again", "last")
    await last.takes_over()
    assert await last.events(appended.run_id) == events


async def test_a_turn_of_a_conversation_joins_it_once(making: Making) -> None:
    """The process dies after it has stored the turn and before it has logged the last event."""
    first = making("shared", "first")
    made = await conversations_of(first.service).create({})
    appended, events = await first.run_to_its_end(conversation=made["id"])
    before = await conversations_of(first.service).items(made["id"], {})
    await forget_runs(first)
    second = await continued(making, appended, len(appended.batches) - 1, "shared")
    assert await second.events(appended.run_id) == events
    assert await conversations_of(second.service).items(made["id"], {}) == before
    assert len(before["data"]) == 2


async def test_one_that_is_stored_and_not_yet_logged_repeats_all_of_its_text(making: Making) -> None:
    """The log lingers: the process dies after it has stored the response and before its last appends."""
    first = making("shared", "first")
    first.logs.linger, put, logged = 5.0, first.stores.responses.put, list[int]()

    async def counting(stored: StoredResponse, append: Append | None = None) -> None:
        logged.append(len(first.logs.appended.batches))
        await put(stored, append)

    first.stores.responses.put = counting  # type: ignore[method-assign]
    appended, events = await first.run_to_its_end()
    await forget_runs(first)
    second = await continued(making, appended, logged[0], "shared")
    assert await second.events(appended.run_id) == events
    assert check_stream(events)["status"] == "completed"


async def test_a_process_that_lost_its_run_changes_nothing(making: Making) -> None:
    """It hung for longer than its lease, and another process ended the response meanwhile."""
    slow = making("shared", "slow")
    made = await conversations_of(slow.service).create({})
    blocked, lost, put = asyncio.Event(), asyncio.Event(), slow.stores.responses.put

    async def hanging(stored: StoredResponse, append: Append | None = None) -> None:
        blocked.set()
        await lost.wait()
        await put(stored, append)

    slow.stores.responses.put = hanging  # type: ignore[method-assign]
    run = await slow.service.start(LOCAL, {"input": "Hi", "background": True, "conversation": made["id"]})
    await slow.service.run_in_background(run)
    await blocked.wait()
    await slow.logs.database.write(lambda tx: tx.run("UPDATE runs SET lease_until = 0"))
    fast = making("shared", "fast")
    await fast.takes_over()
    events = await fast.events(run.id)
    assert check_stream(events)["status"] == "completed"
    lost.set()
    await until(lambda: not slow.service.background._running)
    assert await fast.events(run.id) == events
    assert len((await conversations_of(fast.service).items(made["id"], {}))["data"]) == 2


async def test_too_many_attempts_end_it_as_failed_with_its_text(making: Making) -> None:
    appended, events = await making("first", "first").run_to_its_end()
    second = await continued(making, appended, 6, background_max_attempts=1)
    got = await second.events(appended.run_id)
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    logged = [event for _, batch, _ in appended.batches[:6] for event in batch]
    assert got[: len(logged)] == events[: len(logged)]
    response = got[-1]["response"]
    assert response["status"] == "failed"
    assert "response_interrupted" in response["error"]["message"]
    text = response["output"][0]["content"][0]["text"]
    assert text
    assert "Hello, you there!".startswith(text)
    assert (await second.service.stored(LOCAL).retrieve(appended.run_id)).response == response


async def test_a_run_that_was_cancelled_while_no_process_had_it_ends_as_cancelled(making: Making) -> None:
    appended, events = await making("first", "first").run_to_its_end()
    await making("second", "dead").dies_after(appended, 6)
    second = making("second", "second")
    await second.logs.request_cancel(appended.run_id)
    await second.takes_over()
    got = await second.events(appended.run_id)
    response = check_stream(got)
    assert (response["status"], got[-1]["type"]) == ("cancelled", "response.incomplete")
    assert got[: len(got) - 4] == events[: len(got) - 4]


async def test_one_that_cannot_be_built_fails_with_a_code(making: Making) -> None:
    appended, events = await making("first", "first").run_to_its_end(**SEARCHES)
    second = await continued(making, appended, 20, browser="off")  # it does not offer the tool
    *got, failed = await second.events(appended.run_id)
    assert got == events[: len(got)]
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", len(got))
    stored = (await second.service.stored(LOCAL).retrieve(appended.run_id)).response
    assert "response_interrupted" in stored["error"]["message"]
    assert stored == failed["response"]


async def test_a_look_at_a_run_elsewhere_that_ends_meanwhile_has_the_whole_response(making: Making) -> None:
    """An ended status, with a response that lacks its usage, would be half a truth."""
    process = making("a.sqlite", "a")
    appended, events = await process.run_to_its_end()
    blueprint = Blueprint.read(appended.continuation.request)
    stored = await process.stores.responses.get(appended.run_id)
    assert blueprint.snapshot(events).response == stored.response
    for count in range(len(events)):
        assert blueprint.snapshot(events[:count]).response["status"] in ("queued", "in_progress")
