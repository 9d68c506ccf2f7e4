"""Batches through the official SDK: every request answered once, bad files, cancellation, keys, kill -9."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from anthropic.types.messages import MessageBatch
from openai.types import Batch

from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.events import LeaseLost
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.sql.queues.batches import Batches
from gpt_oss_server.stores.sql.sweeper import Bounds
from inference.backends.scripted import ScriptedEngine
from inference.engine import Sampling
from tests.batches.conftest import Anthropics
from tests.doubles.apis.api_client import client_of, client_with
from tests.doubles.apis.keyed import ALICE, MALLORY
from tests.doubles.commands import final, script
from tests.doubles.postgres import Postgres, running_postgres
from tests.doubles.server_process import ServerProcess
from tests.doubles.serving import scripted
from tests.doubles.stored import known
from tests.doubles.waiting import waited

ANSWER = "<|channel|>final<|message|>Hello!<|return|>"
ENDED = ("completed", "failed", "expired", "cancelled")
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Hi", "store": False},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 50},
    "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50},
}


class Recording:
    """A scripted engine that keeps how each generation is sampled."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self.samplings: list[Sampling] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, prompt: Any, sampling: Sampling) -> Any:
        self.samplings.append(sampling)
        return self._engine.generate(prompt, sampling)


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    with ExitStack() as stack:
        place = str(request.param)
        if place == "sqlite":
            place = f"sqlite:{tmp_path_factory.mktemp('batches')}/store"
        elif place == "postgres":
            place = stack.enter_context(running_postgres()).new_database()
        yield stack.enter_context(client_of(ANSWER, settings=Settings(store=place)))


def line(name: str, endpoint: str = "/v1/responses", **fields: Any) -> dict[str, Any]:
    return {"custom_id": name, "method": "POST", "url": endpoint, "body": {**BODIES[endpoint], **fields}}


def uploaded(client: openai.OpenAI, *lines: object) -> str:
    content = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return client.files.create(file=("batch.jsonl", content.encode()), purpose="batch").id


def begun(client: openai.OpenAI, *lines: object, endpoint: str = "/v1/responses", **fields: Any) -> Batch:
    asked: Any = {"endpoint": endpoint, "completion_window": "24h", **fields}
    return client.batches.create(input_file_id=uploaded(client, *lines), **asked)


def ended(client: openai.OpenAI, batch: Batch, seconds: float = 60) -> Batch:
    return waited(lambda: client.batches.retrieve(batch.id), lambda found: found.status in ENDED, seconds)


def wait_for_answers(client: openai.OpenAI, batch: Batch, count: int = 1, seconds: float = 60) -> None:
    def has_them(found: Batch) -> bool:
        return found.request_counts is not None and found.request_counts.completed >= count

    waited(lambda: client.batches.retrieve(batch.id), has_them, seconds)


def answers(client: openai.OpenAI, file: str | None) -> dict[str, dict[str, Any]]:
    read = [json.loads(answer) for answer in client.files.content(known(file)).text.splitlines()]
    named = {answer["custom_id"]: answer for answer in read}
    assert len(named) == len(read)
    return named


@pytest.mark.parametrize("endpoint", BODIES)
def test_each_request_has_the_answer_of_its_api(client: openai.OpenAI, endpoint: str) -> None:
    lines = [line(f"r{number}", endpoint) for number in range(20)]
    lines[7] = line("wrong", endpoint, temperature=9)
    batch = ended(client, begun(client, *lines, endpoint=endpoint, metadata={"of": "a test"}))
    assert (batch.status, batch.metadata, batch.errors) == ("completed", {"of": "a test"}, None)
    counts = known(batch.request_counts)
    assert (counts.total, counts.completed, counts.failed) == (20, 19, 1)
    good, bad = answers(client, batch.output_file_id), answers(client, batch.error_file_id)
    assert list(good) == [each["custom_id"] for each in lines if each["custom_id"] != "wrong"]
    response = good["r0"]["response"]
    assert response["status_code"] == 200
    assert "ello!" in json.dumps(response["body"])
    assert response["request_id"].startswith("req_")
    assert list(bad) == ["wrong"]
    assert bad["wrong"]["response"]["status_code"] == 400
    assert "temperature" in json.dumps(bad["wrong"]["response"]["body"])
    usage = known(batch.usage)
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens > 19
    assert client.batches.list(limit=1).data[0].id == batch.id


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("{", "invalid_json_line"),
        ("[]", "invalid_request"),
        ({"custom_id": "a", "method": "POST", "url": "/v1/responses"}, "invalid_request"),
        ({**line("a"), "custom_id": 3}, "missing_custom_id"),
        (line("first"), "duplicate_custom_id"),
        (line("a", "/v1/completions"), "invalid_url"),
        (line("a", stream=True), "invalid_request"),
        (line("a", background=True), "invalid_request"),
        ("", "invalid_json_line"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_asked(client: openai.OpenAI, bad: object, code: str) -> None:
    batch = ended(client, begun(client, line("first"), bad, line("last")))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    [error] = known(batch.errors).data or ()
    assert (error.code, error.line) == (code, 2)


def test_bad_requests_say_what_to_do(client: openai.OpenAI) -> None:
    file = uploaded(client, line("a"))
    other = client.files.create(file=("a.jsonl", b"{}"), purpose="user_data").id
    good: Any = {"input_file_id": file, "endpoint": "/v1/responses", "completion_window": "24h"}
    for wrong, status, why in (
        ({"completion_window": "soon"}, 400, "hours or days"),
        ({"endpoint": "/v1/embeddings"}, 400, "endpoint"),
        ({"input_file_id": "file_0"}, 404, "no file 'file_0'"),
        ({"input_file_id": other}, 400, "purpose 'user_data'"),
    ):
        with pytest.raises(openai.APIStatusError, match=why) as refused:
            client.batches.create(**{**good, **wrong})
        assert refused.value.status_code == status
    for look in (client.batches.retrieve, client.batches.cancel):
        with pytest.raises(openai.NotFoundError, match="no batch 'batch_0'"):
            look("batch_0")
    with pytest.raises(openai.BadRequestError, match="no item with id 'batch_0'"):
        client.batches.list(after="batch_0")
    batch = ended(client, begun(client))
    assert [error.code for error in known(batch.errors).data or ()] == ["empty_file"]


def test_a_cancelled_batch_keeps_the_answers_that_it_has() -> None:
    with client_of(ANSWER, tokens_per_second=6, settings=Settings(batch_concurrent=2)) as client:
        batch = begun(client, *(line(f"r{number}") for number in range(30)))
        wait_for_answers(client, batch)
        assert client.batches.cancel(batch.id).status == "cancelling"
        batch = ended(client, batch)
        assert (batch.status, client.batches.cancel(batch.id).status) == ("cancelled", "cancelled")
        good, bad = answers(client, batch.output_file_id), answers(client, batch.error_file_id)
        assert len(good) >= 1
        assert len(good) + len(bad) == 30
        assert {each["error"]["code"] for each in bad.values()} == {"batch_cancelled"}


def test_a_batch_has_the_rights_of_its_key_and_its_requests_start_last(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{ALICE} name=alice tools=none\n{MALLORY} name=mallory")
    engine = Recording(scripted(ANSWER))
    with client_with(engine, Settings(api_key_file=str(keys), browser=f"local:{tmp_path}")) as client:
        alice, mallory = (client.with_options(api_key=key) for key in (ALICE, MALLORY))
        batch = begun(alice, line("a"), line("b", tools=[{"type": "web_search"}]))
        with pytest.raises(openai.NotFoundError):
            mallory.batches.retrieve(batch.id)
        assert not mallory.batches.list().data
        batch = ended(alice, batch)
        assert list(answers(alice, batch.output_file_id)) == ["a"]
        [refused] = answers(alice, batch.error_file_id).values()
        assert refused["response"]["status_code"] == 403
        alice.responses.create(model="scripted", input="Hi")
        asked = [(each.owner, each.priority > 0) for each in engine.samplings]
        assert asked == [("alice", True), ("alice", False)]


def test_the_next_server_goes_on_with_the_requests_that_have_no_answer(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:{tmp_path}/store", batch_concurrent=2)
    names = [f"r{number}" for number in range(20)]
    with client_of(ANSWER, tokens_per_second=60, settings=settings) as client:
        batch = begun(client, *map(line, names))
        wait_for_answers(client, batch)
    engine = Recording(scripted(ANSWER))
    with client_with(engine, settings) as client:
        batch = ended(client, batch)
        assert list(answers(client, batch.output_file_id)) == names
        assert 0 < len(engine.samplings) < len(names)


# --- Anthropic's front ---------------------------------------------------------------------------------


def message(name: str, **fields: Any) -> Any:
    return {"custom_id": name, "params": {"model": "scripted", **BODIES["/v1/messages"], **fields}}


def ended_messages(client: anthropic.Anthropic, batch_id: str) -> MessageBatch:
    batches = client.messages.batches
    return waited(lambda: batches.retrieve(batch_id), lambda found: found.processing_status == "ended")


def test_batches_of_messages_through_anthropics_sdk(client: openai.OpenAI, anthropics: Anthropics) -> None:
    batches = anthropics(client).messages.batches
    begun = batches.create(requests=[message(f"m{at}") for at in range(9)] + [message("bad", temperature=9)])
    assert (begun.type, begun.processing_status, begun.results_url) == ("message_batch", "in_progress", None)
    assert begun.request_counts.processing == 10
    batch = ended_messages(anthropics(client), begun.id)
    counts = {name: count for name, count in batch.request_counts if count}
    assert counts == {"succeeded": 9, "errored": 1}
    assert known(batch.ended_at) >= batch.created_at
    results = {each.custom_id: each.result for each in batches.results(batch.id)}
    assert results.keys() == {*(f"m{at}" for at in range(9)), "bad"}
    good, bad = results["m0"], results["bad"]
    assert good.type == "succeeded"
    assert good.message.content[0].text == "Hello!"  # type: ignore[union-attr]
    assert good.message.usage.output_tokens > 0
    assert bad.type == "errored"
    assert bad.error.error.type == "invalid_request_error"
    assert "temperature" in bad.error.error.message
    assert client.batches.retrieve(batch.id.removeprefix("msg")).status == "completed"
    assert anthropics(client).beta.messages.batches.retrieve(batch.id).id == batch.id
    assert batches.delete(batch.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError, match="no message batch"):
        batches.retrieve(batch.id)
    assert batch.id.removeprefix("msg") not in {each.id for each in client.batches.list()}


def test_batches_of_messages_are_listed_in_pages(client: openai.OpenAI, anthropics: Anthropics) -> None:
    batches = anthropics(client).messages.batches
    made = [batches.create(requests=[message("a")]).id for _ in range(4)]
    other = ended(client, begun(client, line("a")))
    newest = made[::-1]
    first = batches.list(limit=3)
    assert ([each.id for each in first.data], first.has_more) == (newest[:3], True)
    second = first.get_next_page()
    assert second.data[0].id == newest[3]
    before = batches.list(limit=2, before_id=newest[3])
    assert ([each.id for each in before.data], before.has_more) == (newest[1:3], True)
    assert [each.id for each in before.get_next_page().data] == newest[:1]
    for wrong in ({"after_id": "msgbatch_0"}, {"before_id": f"msg{other.id}"}):
        with pytest.raises(anthropic.BadRequestError, match="no message batch"):
            batches.list(**wrong)
    with pytest.raises(anthropic.NotFoundError):
        batches.retrieve(f"msg{other.id}")


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ([], "requests"),
        ([message("a"), message("a")], r"requests\[1\]`: The custom_id 'a'"),
        ([message("a"), message("b", stream=True)], r"requests\[1\]`: A batch has no streams"),
        ([{"custom_id": "a"}], "params"),
    ],
)
def test_a_bad_batch_of_messages_is_refused_at_once(
    client: openai.OpenAI, anthropics: Anthropics, requests: Any, why: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=why):
        anthropics(client).messages.batches.create(requests=requests)


def test_a_cancelled_batch_of_messages_keeps_its_results(anthropics: Anthropics) -> None:
    with client_of(ANSWER, tokens_per_second=6, settings=Settings(batch_concurrent=2)) as client:
        batches = anthropics(client).messages.batches
        made = batches.create(requests=[message(f"m{at}") for at in range(30)])
        wait_for_answers(client, client.batches.retrieve(made.id.removeprefix("msg")))
        for early in (batches.delete, batches.results):
            with pytest.raises(anthropic.AnthropicError, match=r"ended|finished"):
                early(made.id)
        stopped = batches.cancel(made.id)
        assert stopped.processing_status == "canceling"
        assert stopped.cancel_initiated_at is not None
        counts = ended_messages(anthropics(client), made.id).request_counts
        kinds = Counter(each.result.type for each in batches.results(made.id))
        assert kinds == {"succeeded": counts.succeeded, "canceled": counts.canceled}
        assert kinds["succeeded"] + kinds["canceled"] == 30 > kinds["canceled"] > 0


async def test_whoever_has_lost_a_batch_changes_nothing() -> None:
    store = Batches(MemoryDatabase(Bounds()))
    await store.add({"id": "batch_1", "status": "in_progress", "request_counts": {"total": 2}}, {})
    first, second = known(await store.claim(lease=0)), known(await store.claim(lease=60))
    assert await store.claim(lease=60) is None
    await store.answer(second, 1, True, b"{}")
    await store.answer(second, 1, False, b"[]")  # a line has one answer
    answered, changed = store.answer(first, 2, True, b"{}"), store.change(first, status="failed")
    for late in (answered, store.renew(first, 60), changed):
        with pytest.raises(LeaseLost):
            await late
    counts = known(await store.get("batch_1"))["request_counts"]
    assert counts == {"total": 2, "completed": 1, "failed": 0}
    await store.give_back(second)
    assert known(await store.claim(lease=60)).answered == {1}


@pytest.mark.faults
def test_each_of_many_requests_is_answered_once_although_two_servers_are_killed(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        killed(tmp_path, postgres.new_database(), lines=10_000, times=5, servers=2, outage=postgres)


def killed(
    folder: Path, store: str, *, lines: int, times: int, servers: int = 1, outage: Postgres | None = None
) -> None:
    """Servers answer a batch while one after the other is killed; halfway the database stops, too."""
    model = script(folder, final("Hello!", when="Hi"), tokens_per_second=20 if lines < 100 else 200)
    flags = ("--model", model, "--store", store, "--background-lease", "1", "--python", "off")
    running = [ServerProcess(flags, folder / f"log-{number}") for number in range(servers)]
    try:
        for server in running:
            server.start()
        for server in running:
            asyncio.run(server.ready())
        with openai.OpenAI(base_url=running[-1].url, api_key="none", max_retries=20) as client:
            names = [f"r{number}" for number in range(lines)]
            batch = begun(client, *map(line, names))
            for number in range(1, times + 1):
                wait_for_answers(client, batch, 1 + (number - 1) * lines // (times + 1), 600)
                victim = running[number % servers]
                victim.kill()
                if outage is not None and number == 3:
                    outage.stop("fast")
                    time.sleep(10)
                    outage.start()
                victim.start()
                asyncio.run(victim.ready())
            batch = ended(client, batch, 600)
            assert batch.status == "completed"
            assert list(answers(client, batch.output_file_id)) == names
            assert batch.error_file_id is None
            assert Counter(file.purpose for file in client.files.list()) == {"batch": 1, "batch_output": 1}
    finally:
        for server in running:
            server.kill()
