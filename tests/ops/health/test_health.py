"""What a server reports of itself while its engine fails, and what it still does after SIGTERM."""

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.models.model import Model
from gpt_oss_server.observe.health.drain import ExitCode
from gpt_oss_server.observe.health.state import Health
from gpt_oss_server.settings import Settings
from inference.engine import EngineFailed
from inference.failures import IN_A_ROW
from tests.doubles.apis.api_client import APIS
from tests.doubles.commands import ANSWER, script
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.engines.vllm_double import Killable, killable_vllm
from tests.doubles.inference.breaking import breaking_engine
from tests.doubles.server_process import Served
from tests.doubles.server_process import serving as process_serving
from tests.doubles.serving import HELLO, scripted, serving
from tests.doubles.waiting import until_found, wait_until

CHECKS = Settings(engine_check_interval=0.02, python="off")
REQUEST: dict[str, Any] = {"prompt": [1, 2, 3], "max_tokens": 1}


def status(client: httpx.Client, path: str = "/health") -> int:
    return client.get(path).status_code


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url.removesuffix("/v1"), timeout=30)


def test_a_sound_server_is_alive_ready_and_healthy() -> None:
    with serving(scripted(HELLO), CHECKS) as url, client_of(url) as client:
        assert client.get("/live").json() == {"status": "alive"}
        assert client.get("/ready").json() == {"status": "ready", "model": "scripted"}
        health = client.get("/health").json()
        assert (health["status"], health["ready"]) == ("ok", True)
        assert "problem" not in health
        assert [client.head(path).status_code for path in ("/live", "/ready", "/health")] == [200] * 3


def test_health_turns_when_steps_fail_and_says_why_until_they_succeed_again() -> None:
    engine, runner = breaking_engine()
    with serving(engine, CHECKS) as url, client_of(url) as client:
        runner.failure = RuntimeError("the card fell out")
        for _ in range(IN_A_ROW):
            failed = client.post("/v1/completions", json=REQUEST)
            assert (failed.status_code, failed.json()["error"]["code"]) == (503, "server_error")
            assert failed.headers["retry-after"] == "1"
        wait_until(lambda: status(client) == 503)
        health, ready = client.get("/health").json(), client.get("/ready")
        assert (health["status"], health["ready"]) == ("failing", False)
        error = ready.json()["error"]
        assert (ready.status_code, error["code"]) == (503, "server_is_overloaded")
        assert ready.headers["retry-after"]
        for sentence in (health["problem"], error["message"]):
            assert "steps failed in a row, and a check with one token failed" in sentence
            assert "fell out" not in sentence  # only the log has an exception's text
        assert status(client, "/live") == 200
        runner.failure = None
        wait_until(lambda: status(client) == 200 == status(client, "/ready"))


@pytest.mark.parametrize(
    ("failure", "trouble", "problem"),
    [
        (SystemExit(1), None, "thread ended with SystemExit"),
        (RuntimeError("CUDA error"), "The device cuda:0 computes nothing.", "The device cuda:0 computes"),
    ],
    ids=["thread", "device"],
)
def test_health_turns_at_a_final_failure(failure: BaseException, trouble: str | None, problem: str) -> None:
    engine, runner = breaking_engine()
    with serving(engine, CHECKS) as url, client_of(url) as client:
        runner.failure, runner.trouble = failure, trouble
        assert client.post("/v1/completions", json=REQUEST).status_code == 503
        runner.failure = None
        wait_until(lambda: status(client) == 503)
        assert problem in client.get("/health").json()["problem"]


@pytest.mark.parametrize("path", APIS)
@pytest.mark.parametrize("stream", [True, False])
def test_no_stream_begins_while_the_engine_is_known_to_be_broken(path: str, stream: bool) -> None:
    engine = ReplayEngine([200002], fails_after=0)
    with serving(engine, CHECKS) as url, client_of(url) as client:
        for _ in range(IN_A_ROW):
            client.post("/v1/completions", json=REQUEST)
        wait_until(lambda: status(client) == 503)
        refused = client.post(f"/v1{path}", json={**APIS[path], "stream": stream})
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert "The engine cannot generate" in refused.json()["error"]["message"]
        engine.fails_after = None
        wait_until(lambda: status(client) == 200)
        assert client.post(f"/v1{path}", json={**APIS[path], "stream": stream}).status_code == 200


def test_requests_that_are_wrong_do_not_count() -> None:
    with serving(ReplayEngine([200002], context_length=5), CHECKS) as url, client_of(url) as client:
        for _ in range(2 * IN_A_ROW):
            assert client.post("/v1/completions", json={"prompt": [1] * 9}).status_code == 400
        time.sleep(0.2)
        assert status(client) == 200


class Checked:
    def __init__(self, failure: Exception) -> None:
        self.failure: Exception | None = failure

    async def check(self) -> None:
        if self.failure is not None:
            raise self.failure


async def test_a_failure_is_reported_for_good_only_after_a_second_check() -> None:
    engine, reports = Checked(EngineFailed("gone")), list[str]()
    health = Health([Model.of(engine, CHECKS, title="m")], interval=60)  # type: ignore[arg-type]
    health.on_failure = reports.append
    await health.look()
    assert (health.problem, reports) == ("gone", [])
    failure, engine.failure = engine.failure, None
    await health.look()
    assert (health.problem, reports) == (None, [])
    engine.failure = failure
    for _ in range(4):
        await health.look()
    assert reports == ["gone"]


async def test_a_check_that_breaks_is_a_problem_and_does_not_end_the_checks() -> None:
    broken = Checked(ValueError("a bug"))
    health = Health([Model.of(broken, CHECKS, title="m")], interval=0.01)  # type: ignore[arg-type]
    health.start()
    await asyncio.sleep(0.2)
    assert "ValueError" in str(health.problem)
    await health.close()


@contextmanager
def behind_a_server(*more: str) -> Iterator[tuple[Killable, Served, httpx.Client]]:
    with killable_vllm() as engine:
        flags = ("--model", engine.model, "--engine-check-interval", "0.2", *more)
        with process_serving(*flags) as served, client_of(served.api) as client:
            assert status(client, "/ready") == 200
            yield engine, served, client


def test_health_turns_when_the_remote_engine_is_killed_and_back_when_it_returns() -> None:
    with behind_a_server() as (engine, _, client):
        engine.kill()
        wait_until(lambda: status(client) == 503)
        assert "cannot be reached" in client.get("/health").json()["problem"]
        engine.start_again()
        wait_until(lambda: status(client) == 200 == status(client, "/ready"))


def test_the_process_ends_with_its_own_code_where_the_operator_wishes() -> None:
    with behind_a_server("--exit-on-engine-failure") as (engine, served, _):
        engine.kill()
        assert served.process.wait(120) == ExitCode.ENGINE_FAILED


STREAMS, RUNS = 60, 20
TEXT = "<|channel|>final<|message|>" + "word " * 40 + "<|return|>"


def clients_of(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=served.api, timeout=120, limits=httpx.Limits(max_connections=None))


async def stream(client: httpx.AsyncClient, begun: asyncio.Event, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream; none after the first may be missing."""
    events: list[dict[str, Any]] = []
    async with client.stream("POST", "/responses", json={"input": "x", "stream": True, **body}) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
                begun.set()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


async def under_work(served: Served, client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Stops the server once streams and background responses have begun; their last events."""
    begun = [asyncio.Event() for _ in range(STREAMS + RUNS)]
    streams = (stream(client, event, background=at >= STREAMS) for at, event in enumerate(begun))
    work = list(map(asyncio.create_task, streams))
    await asyncio.gather(*(event.wait() for event in begun))
    assert not any(task.done() for task in work)
    served.process.send_signal(signal.SIGTERM)
    return [events[-1] for events in await asyncio.gather(*work)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("speed", "grace", "end", "code"),
    [(8, 600, "response.completed", ExitCode.IN_TIME), (1, 1, "response.failed", ExitCode.LATE)],
    ids=["in time", "late"],
)
async def test_work_ends_within_the_grace_period_or_with_a_terminal_event(
    tmp_path: Path, speed: int, grace: int, end: str, code: ExitCode
) -> None:
    flags = ("--drain-delay", "0", "--shutdown-grace", str(grace), "--no-access-log")
    with process_serving("--model", script(tmp_path, TEXT, tokens_per_second=speed), *flags) as served:
        async with clients_of(served) as client:
            ended = await under_work(served, client)
        assert {event["type"] for event in ended} == {end}
        if code == ExitCode.IN_TIME:
            texts = {event["response"]["output"][-1]["content"][0]["text"] for event in ended}
            assert texts == {"word " * 40}
        else:
            assert {event["response"]["error"]["code"] for event in ended} == {"server_is_overloaded"}
        assert await asyncio.to_thread(served.process.wait, 300) == code


@pytest.mark.slow
async def test_the_next_server_continues_the_background_responses(tmp_path: Path) -> None:
    slow = script(tmp_path, TEXT, tokens_per_second=2)
    flags = ("--drain-delay", "0", "--shutdown-grace", "1", "--store", f"sqlite:{tmp_path / 'store.db'}")
    with process_serving("--model", slow, *flags) as served:
        async with clients_of(served) as client:
            body = {"input": "x", "background": True}
            started = [(await client.post("/responses", json=body)).json() for _ in range(RUNS)]
            served.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(served.process.wait, 300) == ExitCode.IN_TIME  # nothing has failed
    script(tmp_path, TEXT)
    with process_serving("--model", slow, *flags) as served:
        async with clients_of(served) as client:

            async def found() -> list[dict[str, Any]]:
                return [(await client.get(f"/responses/{each['id']}")).json() for each in started]

            def have_ended(found: list[dict[str, Any]]) -> bool:
                return not {response["status"] for response in found} & {"queued", "in_progress"}

            ended = await until_found(found, have_ended, seconds=300)
    assert {response["status"] for response in ended} == {"completed"}
    assert {response["output"][-1]["content"][0]["text"] for response in ended} == {"word " * 40}


def test_before_it_stops_listening_it_is_not_ready_and_serves_nevertheless(tmp_path: Path) -> None:
    flags = ("--model", script(tmp_path, ANSWER), "--drain-delay", "6")
    with process_serving(*flags) as served, httpx.Client(base_url=served.url, timeout=60) as client:
        assert client.get("/ready").status_code == 200
        served.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        refused = client.get("/ready")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
        assert "stopping" in refused.json()["error"]["message"]
        health = client.get("/health")
        assert health.status_code == 200
        assert (health.json()["status"], health.json()["ready"]) == ("draining", False)
        assert client.get("/live").status_code == 200
        assert client.post("/v1/responses", json={"input": "x"}).json()["status"] == "completed"
        assert served.process.wait(60) == ExitCode.IN_TIME


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_stops_immediately(tmp_path: Path, second: signal.Signals) -> None:
    model = script(tmp_path, TEXT, tokens_per_second=1)
    with process_serving("--model", model) as served:
        async with clients_of(served) as client:
            begun = asyncio.Event()
            reading = asyncio.create_task(stream(client, begun))
            await begun.wait()
            served.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
            assert served.process.poll() is None
            served.process.send_signal(second)
            assert await asyncio.to_thread(served.process.wait, 300) == 128 + second
            with pytest.raises(httpx.TransportError):
                await reading
