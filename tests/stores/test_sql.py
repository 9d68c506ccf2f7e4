"""What the statements cost, rows of earlier versions, records as bytes, and which processes have ended."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.events import Continuation
from gpt_oss_server.stores.pages import ItemPage, UnknownItem, Wanted
from gpt_oss_server.stores.sql.codec import decode_addition, encode_addition
from gpt_oss_server.stores.sql.events import EventLogs, Held
from gpt_oss_server.stores.sql.replicas import Replica
from gpt_oss_server.stores.sql.store import SqlStore
from gpt_oss_server.stores.sqlite.database import SqliteDatabase
from tests.doubles.stored import append, conversation, counted, item, known, part


@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_of_rows_without_places(
    database: SqliteDatabase, store: SqlStore, newest_first: bool
) -> None:
    """An earlier version wrote them; they are read whole."""
    await store.put_conversation(conversation("conv_1"), [part("m0", "m1"), part("m2", "m3", "m4")])
    await store.put(StoredResponse({"id": "resp_1", "output": [item("out")]}, (item("a"), item("b"))))
    for table, column in (("parts", "places"), ("responses", "places"), ("items", "place")):
        sql = f"UPDATE {table} SET {column} = NULL"
        assert await database.write(lambda tx, sql=sql: tx.run(sql))
    await store.append(append("conv_1", part("m5", "m6")))

    ordered = [f"m{number}" for number in range(7)][:: -1 if newest_first else 1]
    for after in (None, *ordered):
        page = known(await store.conversation_page("conv_1", Wanted(3, after, newest_first=newest_first)))
        rest = ordered[0 if after is None else ordered.index(after) + 1 :]
        assert page == ItemPage(tuple(map(item, rest[:3])), has_more=len(rest) > 3)
    assert await store.conversation_item("conv_1", "m3") == item("m3")
    page = known(await store.input_page("resp_1", Wanted(1, newest_first=newest_first)))
    assert page == ItemPage((item("b" if newest_first else "a"),), has_more=True)
    with pytest.raises(UnknownItem):
        await store.input_page("resp_1", Wanted(1, "out"))


async def test_the_items_of_other_owners_cost_nothing(store: SqlStore) -> None:
    other = store.of("other")
    for number in range(20):
        await other.put(StoredResponse({"id": f"resp_{number}", "output": []}, (item("shared"),)))
    await store.put_conversation(conversation("conv_1"), [part("shared"), part("own")])
    reads, costs = counted(store), list[int]()
    for name in ("shared", "own"):
        before = reads.rows_read
        assert await store.conversation_item("conv_1", name) == item(name)
        costs.append(reads.rows_read - before)
    assert costs[0] == costs[1]


TEXT = st.text(st.characters(exclude_categories=()), max_size=5)
SEGMENTS = st.builds(
    Segment,
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(st.integers(0, 201_087), max_size=5).map(tuple),
    channel=st.none() | st.sampled_from(["analysis", "final"]),
    recipient=st.none() | TEXT,
    text=st.none() | TEXT,
    stands_for=st.integers(0, 3),
    tools=st.lists(st.dictionaries(TEXT, TEXT, max_size=1), max_size=2).map(tuple),
)
ADDITIONS = st.builds(
    Addition,
    st.lists(SEGMENTS, max_size=3).map(tuple),
    st.dictionaries(TEXT, TEXT, max_size=2),
    st.dictionaries(TEXT, st.tuples(TEXT, TEXT), max_size=2),
    st.lists(TEXT, max_size=2).map(tuple),
)


@given(ADDITIONS)
def test_an_addition_is_the_same_after_a_round_trip_through_bytes(added: Addition) -> None:
    assert decode_addition(encode_addition(added)) == added


async def test_a_look_for_runs_to_continue_writes_only_where_one_is_free(database: SqliteDatabase) -> None:
    here = EventLogs(database, Held(), Replica())
    there = EventLogs(database, Held(), Replica(machine="another"), lease=60.0)
    await there.begin("held", Continuation(b"request", None))
    looks = counted(here)
    assert [await here.claim() for _ in range(5)] == [None] * 5
    assert looks.writes == 0
    await there.give_back("held")
    claimed = known(await here.claim())
    assert claimed.run_id == "held"
    assert await here.claim() is None


def test_a_process_of_this_machine_is_dead_once_it_has_ended() -> None:
    here, there = Replica(), Replica()
    assert str(here) != str(there)
    assert [here.knows_dead(str(server)) for server in (here, there)] == [False, False]
    assert here.knows_dead(f"{here.machine}/{os.getpid()}/earlier")
    assert not here.knows_dead(f"another-{here.machine}/{os.getpid()}/start"), "of another machine"
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{here.machine}/{process.pid}/start"
    assert not here.knows_dead(name)
    process.communicate(b"\n")
    assert here.knows_dead(name)
