"""What a store costs: streams with each store through real HTTP, long conversations, and a large database.

All figures come from one run on this machine.
"""

import asyncio
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import ConversationPart
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.postgres.database import PostgresDatabase
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.benchmarks.test_overhead import check_complete, completion, interleaved, load, port_of
from tests.doubles.commands import script
from tests.doubles.postgres import Postgres, running_postgres
from tests.doubles.server_process import serving
from tests.doubles.stored import append, conversation, item, known, stored, turn

pytestmark = pytest.mark.benchmark
STREAMS, TOKENS, ROUNDS = 64, 400, 7
LEAST = {"sqlite": 0.7, "postgres": 0.5}  # of the memory store's rate
TURNS, COMPARED = 1_000, 300
RESPONSES = 100_000


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


def test_streams_with_each_store(postgres: Postgres, encoding: Encoding, tmp_path: Path) -> None:
    model = script(tmp_path, {"tokens": completion(encoding, TOKENS)})
    sqlite = f"sqlite:{tmp_path / 'store.sqlite'}"
    places = {"memory": "memory", "sqlite": sqlite, "postgres": postgres.new_database()}
    body = {"input": "Hi", "stream": True, "store": True}
    with ExitStack() as stack:
        ports = {}
        for name, place in places.items():
            server = stack.enter_context(serving("--model", model, "--store", place))
            ports[name] = port_of(server.url)
            load(ports[name], 4, body)

        def measured(name: str, _: int) -> tuple[float, float]:
            report = load(ports[name], STREAMS, body)
            check_complete(report, STREAMS, TOKENS)
            return report["deltas"] / report["seconds"], load(ports[name], 1, body)["median_first"]

        found = interleaved(places, ROUNDS, measured)
    medians = {name: [*map(statistics.median, zip(*own, strict=True))] for name, own in found.items()}
    of_memory, first_of_memory = medians["memory"]
    print()
    for name, (rate, first) in medians.items():
        share = f"{rate:>9,.0f} tokens/s ({rate / of_memory:4.0%} of memory)"
        print(f"  {name:<10} {share}   first token after {first * 1e3:5.1f} ms")
    for name, least in LEAST.items():
        assert medians[name][0] >= least * of_memory
        assert medians[name][1] - first_of_memory < 0.005


async def _begin(store: SqlStore, name: str, turns: int) -> None:
    await store.put_conversation(conversation(name))
    for number in range(turns):
        await _turn(store, name, number)


async def _turn(store: SqlStore, name: str, number: int) -> tuple[float, float]:
    """The seconds that a turn of a conversation takes to read its history and to write."""
    began = time.perf_counter()
    history = known(await store.conversation_history(name))
    read = time.perf_counter()
    segments = (Segment("user", tuple(range(1000, 1040))), Segment("assistant", tuple(range(1000, 1100))))
    given = turn(f"resp_{name}_{number}", history.position, segments=segments)
    part = ConversationPart((item(f"msg_{name}_{number}"),), Addition(segments))
    await store.put(given, append(name, part))
    return read - began, time.perf_counter() - read


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_turn_of_a_long_conversation(kind: str, postgres: Postgres, tmp_path: Path) -> None:
    """Turns of the long conversation and of short ones alternate, so that other load disturbs both alike."""
    file = tmp_path / "store.sqlite"
    store = SqlStore(SqliteDatabase(file) if kind == "sqlite" else PostgresDatabase(postgres.new_database()))
    await _begin(store, "long", TURNS)
    early, late = [], []
    for number in range(COMPARED):
        short = f"short_{number // 10}"
        if number % 10 == 0:
            await _begin(store, short, 5)
        early.append(await _turn(store, short, 5 + number % 10))
        late.append(await _turn(store, "long", TURNS + number))
    await store.close()
    # The fastest quarter, because other load disturbs single turns.
    reads = [statistics.quantiles(read for read, _ in turns)[0] for turns in (early, late)]
    writes = [statistics.quantiles(write for _, write in turns)[0] for turns in (early, late)]
    print(
        f"\n  {kind}: the 10th turn writes in {writes[0] * 1e3:.2f} ms, the {TURNS:,}th in"
        f" {writes[1] * 1e3:.2f} ms; its history is read in {reads[0] * 1e3:.2f} and {reads[1] * 1e3:.2f} ms"
    )
    assert writes[1] < 1.2 * writes[0]


async def test_a_large_database_starts_and_answers_fast(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqlStore(SqliteDatabase(path))
    for first in range(0, RESPONSES, 1_000):
        names = (f"resp_{number}" for number in range(first, first + 1_000))
        await asyncio.gather(*(store.put(stored(name, tokens=100)) for name in names))
    await store.close()
    began = time.perf_counter()
    store = SqlStore(SqliteDatabase(path))
    assert await store.get("resp_1") is not None
    started = time.perf_counter() - began
    times = []
    for number in range(0, RESPONSES, RESPONSES // 500):
        began = time.perf_counter()
        assert await store.history(f"resp_{number}") is not None
        times.append(time.perf_counter() - began)
    await store.close()
    median = statistics.median(times)
    opened, read = f"opened in {started * 1e3:.0f} ms", f"a history found in {median * 1e3:.2f} ms (p50)"
    print(f"\n  {RESPONSES:,} responses: {opened}, {read}")
    assert started < 1
    assert median < 0.005
