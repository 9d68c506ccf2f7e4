"""Servers that are killed or paused at random, and a database that stops for ten seconds under load.

No background response is lost, doubled or different. In an outage, a client sees answers or a 503 that it may
repeat. `make faults` runs it; SECONDS, RUNS and RATE change its size.
"""

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doubles.commands import final, script
from tests.doubles.postgres import running_postgres
from tests.doubles.server_process import Client, ServerProcess, started

pytestmark = pytest.mark.faults
SECONDS = float(os.environ.get("SECONDS", "300"))
RUNS = int(os.environ.get("RUNS", "300"))
LEASE = 5
LAST = r"((?!<\|start\|>)[\s\S])*<\|start\|>assistant$"  # the prompt's last message begins with …
LONG = " ".join(f"word-{number}" for number in range(150))
FLAGS = ("--background-max-attempts", "1000", "--background-max-runs", "1000", "--python", "off")


def pages_and_script(folder: Path) -> str:
    """A search, a page, and an answer that cites it; 100 tokens per second."""
    (folder / "pages").mkdir()
    (folder / "pages" / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")
    think = f"<|channel|>analysis<|message|>{LONG}<|end|><|start|>assistant"
    search = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
    opens = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
    turns = [
        {"when": r"browser\.search to=" + LAST, "text": think + opens},
        final(f"It is deep【1†L0-L2】. {LONG} 東京🙂", when=r"browser\.open to=" + LAST),
        {"when": "search" + LAST, "text": think + search},
        final(f"{LONG} {LONG}", when="plain"),
    ]
    return script(folder, *turns, tokens_per_second=100)


SCRIPTED: list[dict[str, Any]] = [{"input": "search", "tools": [{"type": "web_search"}]}, {"input": "plain"}]
EMBEDDED: list[dict[str, Any]] = [
    {"input": "Tell me a long story about the sea.", "temperature": 0, "max_output_tokens": 300},
    {"input": "Count to fifty.", "temperature": 1, "seed": 7, "max_output_tokens": 300},
]


@dataclass
class Outcome:
    started: list[tuple[str, int]] = field(default_factory=list)  # id and kind of what was acknowledged
    faults: int = 0
    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def report(self, of: str, seconds: float) -> None:
        print(
            f"\n{of}: {len(self.started)} background responses, {self.faults} faults in {seconds:.0f} s; "
            f"problems: {dict(self.problems) or 'none'}"
        )
        for example in self.examples[:5]:
            print("  ", example)
        assert not self.problems


async def start(client: Client, body: dict[str, Any]) -> str:
    answer = await client.request("POST", "/responses", json={**body, "background": True})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def ended(client: Client, response_id: str, until: float) -> dict[str, Any] | None:
    while time.monotonic() < until:
        answer = await client.request("GET", f"/responses/{response_id}")
        if answer.status_code == 404:
            return None
        response: dict[str, Any] = answer.json()
        if response["status"] not in ("queued", "in_progress"):
            return response
        await asyncio.sleep(0.5)
    return None


async def events_of(client: Client, response_id: str) -> list[dict[str, Any]]:
    answer = await client.request("GET", f"/responses/{response_id}", params={"stream": "true"})
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def essence(response: dict[str, Any]) -> Any:
    """What must not depend on faults: everything but ids and times."""
    items = [{key: value for key, value in item.items() if key != "id"} for item in response["output"]]
    usage = {key: response["usage"][key] for key in ("input_tokens", "output_tokens")}
    return response["status"], items, usage


def texts(events: list[dict[str, Any]], response: dict[str, Any]) -> tuple[str, str]:
    streamed = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
    messages = [item for item in response["output"] if item["type"] == "message"]
    return streamed, "".join(part["text"] for message in messages for part in message["content"])


async def check(client: Client, outcome: Outcome, expected: list[Any], until: float) -> None:
    def problem(kind: str, response_id: str, more: object = "") -> None:
        outcome.problems[kind] += 1
        outcome.examples.append(f"{response_id}: {kind} {more!s:.3000}")

    for response_id, kind in outcome.started:
        response = await ended(client, response_id, until)
        if response is None:
            problem("lost", response_id)
            continue
        events = await events_of(client, response_id)
        numbers = [event.get("sequence_number") for event in events]
        if len(set(numbers)) < len(numbers):
            problem("doubled events", response_id)
        elif numbers != list(range(len(numbers))):
            problem("gaps", response_id, numbers)
        elif events[-1]["response"] != response:
            problem("another end in the log", response_id)
        if essence(response) != expected[kind]:
            problem("another response", response_id, essence(response))
        elif (both := texts(events, response))[0] != both[1]:
            deltas = [event.get("delta") for event in events]
            problem("another text in the log", response_id, (both, deltas))


async def under_faults(
    servers: list[ServerProcess], bodies: list[dict[str, Any]], fault: Any, *, seconds: float, runs: int
) -> Outcome:
    """Starts runs at a steady rate while `fault` disturbs a server every few seconds."""
    outcome, rng = Outcome(), random.Random(5)
    async with started(*servers):
        client = Client(servers)
        expected = []
        for body in bodies:
            response = await ended(client, await start(client, body), time.monotonic() + 300)
            expected.append(essence(response))
        end = time.monotonic() + seconds

        async def disturb() -> None:
            while time.monotonic() < end:
                await asyncio.sleep(rng.uniform(1, 4))
                await fault(rng.choice(servers))
                outcome.faults += 1

        async def begin(number: int) -> None:
            await asyncio.sleep(number * seconds / runs)
            kind = number % len(bodies)
            outcome.started.append((await start(client, bodies[kind]), kind))

        await asyncio.gather(disturb(), *(begin(number) for number in range(runs)))
        await check(client, outcome, expected, time.monotonic() + 300)
        await client.close()
    return outcome


async def kill(server: ServerProcess) -> None:
    server.kill()
    server.start()
    await server.ready()


async def pause(server: ServerProcess) -> None:
    server.send(signal.SIGSTOP)
    await asyncio.sleep(2 * LEASE)
    server.send(signal.SIGCONT)
    await asyncio.sleep(LEASE)


def servers_of(folder: Path, count: int, *flags: str) -> list[ServerProcess]:
    return [ServerProcess((*FLAGS, *flags), folder / f"server-{number}.log") for number in range(count)]


@pytest.fixture
def postgres_url() -> Iterator[str]:
    with running_postgres() as server:
        yield server.new_database()


@pytest.mark.parametrize("engine", ["scripted", "embedded"])
async def test_two_servers_one_of_which_is_killed(engine: str, postgres_url: str, tmp_path: Path) -> None:
    bodies = SCRIPTED if engine == "scripted" else EMBEDDED
    model = pages_and_script(tmp_path) if engine == "scripted" else "tiny"
    pages = ("--browser", f"local:{tmp_path / 'pages'}") if engine == "scripted" else ()
    servers = servers_of(tmp_path, 2, "--model", model, "--store", postgres_url, *pages)
    runs = RUNS if engine == "scripted" else RUNS // 5
    outcome = await under_faults(servers, bodies, kill, seconds=SECONDS, runs=runs)
    outcome.report(f"kill -9, Postgres, {engine}", SECONDS)


async def test_one_server_over_sqlite_that_is_killed(tmp_path: Path) -> None:
    store, pages = f"sqlite:{tmp_path / 'store.sqlite'}", f"local:{tmp_path / 'pages'}"
    flags = ("--model", pages_and_script(tmp_path), "--store", store, "--browser", pages)
    servers = servers_of(tmp_path, 1, *flags)
    outcome = await under_faults(servers, SCRIPTED, kill, seconds=SECONDS, runs=RUNS)
    outcome.report("kill -9, SQLite, scripted", SECONDS)


async def test_two_servers_over_postgres_one_of_which_hangs(postgres_url: str, tmp_path: Path) -> None:
    pages, lease = f"local:{tmp_path / 'pages'}", ("--background-lease", str(LEASE))
    flags = ("--model", pages_and_script(tmp_path), "--store", postgres_url, "--browser", pages, *lease)
    outcome = await under_faults(servers_of(tmp_path, 2, *flags), SCRIPTED, pause, seconds=SECONDS, runs=RUNS)
    outcome.report("SIGSTOP for twice the lease, Postgres, scripted", SECONDS)


RATE = float(os.environ.get("RATE", "200"))  # requests per second
BEFORE, OUTAGE, AFTER = 5.0, 10.0, 15.0


async def test_a_database_that_stops_for_ten_seconds(tmp_path: Path) -> None:
    with running_postgres() as postgres:
        model = script(tmp_path, final("word " * 20))
        flags = ("--model", model, "--store", postgres.new_database(), "--python", "off")
        server = ServerProcess(flags, tmp_path / "server.log")
        seen: Counter[str] = Counter()
        kept: list[tuple[str, dict[str, Any]]] = []
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=200)
        async with started(server), httpx.AsyncClient(timeout=120, limits=limits) as client:

            async def ask(previous: str | None) -> None:
                body = {"input": "Hi", "previous_response_id": previous}
                answer = await client.post(f"{server.url}/responses", json=body)
                name = str(answer.status_code)
                if answer.status_code == 200:
                    kept.append((answer.json()["id"], answer.json()))
                else:
                    name += f" {answer.json()['error']['code']}"
                    seen["without retry-after"] += "retry-after" not in answer.headers
                seen[name] += 1

            async def load() -> None:
                began = time.monotonic()
                async with asyncio.TaskGroup() as group:
                    for number in range(int(RATE * (BEFORE + OUTAGE + AFTER))):
                        await asyncio.sleep(began + number / RATE - time.monotonic())
                        group.create_task(ask(kept[-1][0] if kept and number % 2 else None))

            async def stop() -> None:
                await asyncio.sleep(BEFORE)
                await asyncio.to_thread(postgres.stop, "fast")
                await asyncio.sleep(OUTAGE)
                await asyncio.to_thread(postgres.start)

            await asyncio.gather(load(), stop())
            lost = 0
            for response_id, response in kept:
                stored = await client.get(f"{server.url}/responses/{response_id}")
                lost += stored.status_code != 200 or stored.json() != response
    print(f"\nPostgres stopped for {OUTAGE:.0f} s at {RATE:.0f} requests/s: {dict(seen)}; lost: {lost}")
    assert set(seen) <= {"200", "503 store_unavailable", "503 server_is_overloaded", "without retry-after"}
    assert seen["without retry-after"] == 0
    assert lost == 0
