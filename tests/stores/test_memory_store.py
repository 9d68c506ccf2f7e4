"""The memory store keeps its bounds and frees what it deletes; a WebSocket's store has what is its own."""

import json
from dataclasses import replace

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Append, Item, Statistics, StoredResponse
from gpt_oss_server.stores.chain import UnknownParent
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.stores.memory.connection import ConnectionStore
from gpt_oss_server.stores.sql.sizes import statistics
from tests.doubles.apis.asking import responses_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.doubles.stored import append, conversation, part, position, stored, texts
from tests.doubles.tools.scripted_tool import Clock

NOTHING = (0, 0, 0, 0)


async def held(store: MemoryStore) -> Statistics:
    return await store.database.read(statistics)


async def left(store: MemoryStore) -> tuple[int, int, int, int]:
    size = await held(store)
    return size.responses, size.conversations, size.turns, size.bytes


async def bytes_of(response: StoredResponse) -> int:
    store = MemoryStore()
    await store.put(response)
    return (await held(store)).bytes


async def kept(store: MemoryStore, count: int) -> list[int]:
    """The numbers of the responses that the store still has, of those that were put."""
    return [number for number in range(count) if await store.get(f"resp_{number}") is not None]


@pytest.mark.parametrize("bound", ["count", "bytes"])
async def test_the_oldest_are_evicted_when_they_are_too_many_or_too_large(bound: str) -> None:
    each = await bytes_of(stored("resp_0", tokens=1_000))
    store = MemoryStore(max_responses=3) if bound == "count" else MemoryStore(max_bytes=3 * each)
    for number in range(9):
        await store.put(stored(f"resp_{number}", tokens=1_000))
        assert (await held(store)).bytes <= 3 * each
    assert await kept(store, 9) == [6, 7, 8]


async def test_old_responses_and_conversations_are_evicted_by_whatever_call_is_next() -> None:
    clock = Clock()
    store = MemoryStore(max_age=10, max_conversation_age=20, clock=clock)
    await store.put(stored("resp_0"))
    for number in range(2):
        await store.put_conversation(conversation(f"conv_{number}"), [part("msg")])
    clock.now = 9.0
    assert await store.get("resp_0") is not None
    clock.now = 10.0
    assert await store.get("resp_0") is None
    await store.set_metadata("conv_0", {})  # the age counts from the last change
    clock.now = 20.0
    assert await store.get_conversation("conv_1") is None
    assert await store.get_conversation("conv_0") is not None
    clock.now = 30.0
    assert await store.get_conversation("conv_0") is None
    assert await left(store) == NOTHING


async def test_responses_and_conversations_share_the_bound_and_the_oldest_are_evicted_first() -> None:
    clock, unbounded = Clock(), MemoryStore()

    async def fill(store: MemoryStore) -> None:
        for number in range(4):
            clock.now += 1
            await store.put(stored(f"resp_{number}", tokens=1_000))
            clock.now += 1
            large = part(f"msg_{number}", tokens=1_000)
            await store.put_conversation(conversation(f"conv_{number}"), [large])

    await fill(unbounded)
    store = MemoryStore(max_bytes=(await held(unbounded)).bytes // 2, clock=clock)
    await fill(store)
    assert await kept(store, 4) == [2, 3]
    left = [number for number in range(4) if await store.get_conversation(f"conv_{number}") is not None]
    assert left == [2, 3]
    assert await store.item("msg_0") is None


async def test_a_turn_counts_as_long_as_a_response_a_conversation_or_a_child_needs_it() -> None:
    store = MemoryStore()
    parent = stored("resp_1", tokens=10_000)
    await store.put_conversation(conversation("conv_1"))
    await store.put(parent)
    alone = (await held(store)).bytes
    await store.put(replace(stored("resp_2"), parent=await position(store, "resp_1")))
    assert (await held(store)).bytes - alone < alone / 50, "the child shares the history"
    await store.delete("resp_1")
    assert (await held(store)).bytes > alone * 0.9
    await store.append(append("conv_1", part("msg_1", tokens=10_000)))
    await store.delete("resp_2")
    assert (await held(store)).bytes > alone * 0.9
    await store.delete_conversation("conv_1")
    assert await left(store) == NOTHING


async def test_evicted_parents_and_those_of_deleted_children_leave_nothing_uncounted() -> None:
    each = await bytes_of(stored("resp_0", tokens=10_000))
    store = MemoryStore(max_bytes=4 * each)
    for number in range(40):
        parent = stored(f"resp_parent_{number}", tokens=10_000)
        await store.put(parent)
        await store.put(replace(stored(f"resp_{number}"), parent=await position(store, parent.id)))
        await store.delete(parent.id)
        assert (await held(store)).bytes <= 4 * each
    assert await kept(store, 40) == [37, 38, 39]
    for number in range(40):
        await store.delete(f"resp_{number}")
    assert await left(store) == NOTHING


async def test_a_closed_store_states_that_it_is_closed() -> None:
    store = MemoryStore()
    assert await store.get("resp_1") is None
    await store.close()
    for call in (store.get("resp_1"), store.put(stored("resp_1"))):
        with pytest.raises(StoreUnavailable, match="The store memory is closed"):
            await call


@pytest.mark.parametrize("first", [True, False])
async def test_a_connection_s_store_refuses_a_parent_from_the_other_store(first: bool) -> None:
    below = MemoryStore()
    store = ConnectionStore(below, below)
    parent = stored("resp_1")
    parent.response["store"] = first
    await store.put(parent)
    here = await position(store, "resp_1")
    child, same = (replace(stored(name), parent=here) for name in ("resp_2", "resp_3"))
    child.response["store"], same.response["store"] = not first, first
    with pytest.raises(UnknownParent):
        await store.put(child)
    await store.put(same)
    assert len(await texts(store, "resp_3")) == 2
    assert (await below.get("resp_3") is not None) == first
    assert await store.get("resp_3") == same
    await store.delete("resp_1")
    assert len(await texts(store, "resp_3")) == 2
    await store.close()


async def test_a_connection_drops_a_response_whose_conversation_cannot_grow() -> None:
    class Full(MemoryStore):
        async def append(self, append: Append) -> tuple[Item, ...] | None:
            raise OSError("the disk is full")

    below = Full()
    store = ConnectionStore(below, below)
    with pytest.raises(OSError, match="full"):
        await store.put(stored("resp_1"), append("conv_1", part("msg_1")))
    assert await store.get("resp_1") is None
    await store.close()


@pytest.mark.parametrize("background", [False, True])
async def test_a_response_that_cannot_be_stored_ends_as_failed(encoding: Encoding, background: bool) -> None:
    class Broken(MemoryStore):
        async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
            raise OSError("the disk is full")

    engine = scripted("<|channel|>final<|message|>Hello!<|return|>")
    service = responses_service(engine, Settings(), encoding=encoding, store=Broken())
    run = await service.start(LOCAL, {"input": "Hi", "background": background})
    if background:
        log = await service.run_in_background(run)
        events = [json.loads(event.partition(b"data: ")[2]) async for batch in log.read() for event in batch]
    else:
        events = [event async for batch in run for event in batch]
    response = check_stream(events)
    assert (events[-1]["type"], response["status"]) == ("response.failed", "failed")
    assert "stored" in response["error"]["message"]
    assert response["output"][0]["content"][0]["text"] == "Hello!"
    await service.close()
