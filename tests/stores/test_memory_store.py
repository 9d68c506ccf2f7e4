"""The memory store keeps its contract and its bounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpt_oss_server.app import create_app
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Append, Item, Store, StoredResponse
from gpt_oss_server.stores.chain import Addition, Position, UnknownParent
from gpt_oss_server.stores.connection import ConnectionStore
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.stores.memory_entries import size_of
from tests.contracts.store_contract import StoreContract
from tests.doubles.apis.services import responses_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.doubles.stored import append, conversation, part, position, stored, texts


class TestMemoryStore(StoreContract):
    async def make(self) -> Store:
        return MemoryStore()

    async def make_small(self, most: int) -> Store:
        return MemoryStore(max_responses=most, max_conversations=most)


class TestConnectionStore(StoreContract):
    async def make(self) -> Store:
        return ConnectionStore(MemoryStore())

    async def make_small(self, most: int) -> Store:
        return ConnectionStore(MemoryStore(max_responses=most, max_conversations=most))


async def test_the_oldest_are_evicted_when_there_are_too_many() -> None:
    store = MemoryStore(max_responses=2)
    for number in range(4):
        await store.put(stored(f"resp_{number}"))
    assert [await store.get(f"resp_{n}") is not None for n in range(4)] == [False, False, True, True]


async def test_the_oldest_are_evicted_when_they_take_too_many_bytes() -> None:
    each = size_of(stored("resp_0", tokens=1_000))
    store = MemoryStore(max_bytes=3 * each)
    for number in range(9):
        await store.put(stored(f"resp_{number}", tokens=1_000))
    assert len(store) == 3
    assert store.bytes <= 3 * each


async def test_old_responses_are_evicted() -> None:
    now = 0.0
    store = MemoryStore(max_age=10, clock=lambda: now)
    await store.put(stored("resp_1"))
    now = 9.0
    assert await store.get("resp_1") is not None
    now = 10.0
    assert await store.get("resp_1") is None
    assert store.bytes == 0


async def test_deleting_frees_all_bytes() -> None:
    store = MemoryStore()
    for _ in range(3):
        await store.put(stored("resp_1", tokens=50))
    await store.delete("resp_1")
    assert (len(store), store.bytes) == (0, 0)


def continued(parent: Position | None, response_id: str, *, tokens: int = 3) -> StoredResponse:
    """A response whose history is its parent's plus its own segment."""
    return replace(stored(response_id, tokens=tokens), parent=parent)


async def test_a_history_is_counted_once_while_its_turns_share_it() -> None:
    store = MemoryStore()
    parent = stored("resp_1", tokens=10_000)
    await store.put(parent)
    alone = store.bytes
    await store.put(continued(await position(store, "resp_1"), "resp_2"))
    assert store.bytes - alone < alone / 100


async def test_a_deleted_parent_counts_as_long_as_a_child_keeps_its_history() -> None:
    store = MemoryStore()
    parent = stored("resp_1", tokens=10_000)
    await store.put(parent)
    alone = store.bytes
    await store.put(continued(await position(store, "resp_1"), "resp_2"))
    await store.delete("resp_1")
    assert store.bytes > alone * 0.9
    await store.delete("resp_2")
    assert (len(store), store.bytes) == (0, 0)


async def test_children_of_deleted_parents_stay_within_the_bound() -> None:
    each = size_of(stored("resp_0", tokens=10_000))
    store = MemoryStore(max_bytes=4 * each)
    for number in range(40):
        parent = stored(f"resp_parent_{number}", tokens=10_000)
        await store.put(parent)
        await store.put(continued(await position(store, parent.id), f"resp_child_{number}"))
        await store.delete(parent.id)
        assert store.bytes <= 4 * each
    assert len(store) <= 4
    for number in range(40):
        await store.delete(f"resp_child_{number}")
    assert (len(store), store.bytes) == (0, 0)


async def test_evicted_parents_leave_no_history_uncounted() -> None:
    store = MemoryStore(max_responses=1)
    turn = stored("resp_0", tokens=10_000)
    await store.put(turn)
    for number in range(1, 20):
        turn = continued(await position(store, turn.id), f"resp_{number}", tokens=10_000)
        await store.put(turn)
    assert len(store) == 1
    history = await store.history(turn.id)
    assert history is not None
    assert len(history.segments) == 20
    whole = replace(turn, added=Addition(history.segments))
    assert store.bytes >= size_of(whole) > 10 * size_of(turn)
    await store.delete(turn.id)
    assert store.bytes == 0


async def test_a_segment_that_occurs_twice_in_a_history_is_counted_once_and_freed() -> None:
    store = MemoryStore()
    single = stored("resp_1", tokens=1_000)
    double = replace(single, added=replace(single.added, segments=single.added.segments * 2))
    await store.put(double)
    assert store.bytes == size_of(double) < size_of(single) * 1.1
    await store.delete("resp_1")
    assert store.bytes == 0


async def test_the_oldest_conversations_are_evicted_when_there_are_too_many() -> None:
    store = MemoryStore(max_conversations=2)
    for number in range(3):
        await store.put_conversation(conversation(f"conv_{number}"), [part(f"msg_{number}")])
    await store.put(stored("resp_1"))
    found = [await store.get_conversation(f"conv_{number}") for number in range(3)]
    assert [each is not None for each in found] == [False, True, True]
    assert await store.item("msg_0") is None


async def test_the_age_of_a_conversation_counts_from_its_last_change() -> None:
    now = 0.0
    store = MemoryStore(max_conversation_age=10, clock=lambda: now)
    for number in range(2):
        await store.put_conversation(conversation(f"conv_{number}"), [part("msg")])
    now = 9.0
    await store.set_metadata("conv_0", {})
    now = 15.0
    assert await store.get_conversation("conv_0") is not None
    assert await store.get_conversation("conv_1") is None
    now = 19.0
    assert await store.get_conversation("conv_0") is None
    assert (len(store), store.bytes) == (0, 0)


async def test_responses_and_conversations_share_the_bound_and_the_oldest_are_evicted_first() -> None:
    now = 0.0
    of_conversation = size_of(conversation("conv_0"), [part("msg_0", tokens=1_000)])
    both = of_conversation + size_of(stored("resp_0", tokens=1_000))
    store = MemoryStore(max_bytes=2 * both, clock=lambda: now)
    for number in range(4):
        now += 1
        await store.put(stored(f"resp_{number}", tokens=1_000))
        now += 1
        await store.put_conversation(conversation(f"conv_{number}"), [part(f"msg_{number}", tokens=1_000)])
    assert store.bytes <= 2 * both
    assert [await store.get(f"resp_{n}") is not None for n in range(4)] == [False, False, True, True]
    kept = [await store.get_conversation(f"conv_{n}") is not None for n in range(4)]
    assert kept == [False, False, True, True]


async def test_the_size_of_a_growing_conversation_is_counted() -> None:
    store = MemoryStore()
    await store.put_conversation(conversation("conv_1"))
    for number in range(50):
        await store.append(append("conv_1", part(f"msg_{number}", tokens=1_000)))
        found = await store.get_conversation("conv_1")
        parts = await store.conversation_parts("conv_1")
        assert found is not None
        assert parts is not None
        assert store.bytes == size_of(found, parts)
    await store.delete_conversation("conv_1")
    assert (len(store), store.bytes) == (0, 0)


async def test_a_turn_in_both_a_response_and_a_conversation_is_counted_once() -> None:
    store = MemoryStore()
    await store.put_conversation(conversation("conv_1"))
    shared = part("msg_1", tokens=10_000)
    await store.put(replace(stored("resp_1"), added=shared.added), append("conv_1", shared))
    both = store.bytes
    await store.delete("resp_1")
    assert store.bytes > both * 0.9
    await store.delete_conversation("conv_1")
    assert store.bytes == 0


async def test_a_long_chain_is_freed_without_recursion() -> None:
    store = MemoryStore(max_responses=1)
    parent = None
    for number in range(3_000):
        await store.put(continued(parent, f"resp_{number}"))
        parent = await position(store, f"resp_{number}") if number % 100 == 0 else parent
    await store.delete("resp_2999")
    assert (len(store), store.bytes) == (0, 0)


@pytest.mark.parametrize("first", [True, False])
async def test_a_connection_s_store_refuses_a_parent_from_the_other_store(first: bool) -> None:
    below = MemoryStore()
    store = ConnectionStore(below)
    parent = stored("resp_1")
    parent.response["store"] = first
    child = continued(None, "resp_2")
    child.response["store"] = not first
    await store.put(parent)
    here = await position(store, "resp_1")
    with pytest.raises(UnknownParent):
        await store.put(replace(child, parent=here))
    same = continued(here, "resp_3")
    same.response["store"] = first
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

    store = ConnectionStore(Full())
    with pytest.raises(OSError, match="full"):
        await store.put(stored("resp_1"), append("conv_1", part("msg_1")))
    assert await store.get("resp_1") is None
    await store.close()


def test_a_given_store_is_used_although_it_is_empty() -> None:
    store = MemoryStore(max_responses=1)
    app = create_app(scripted("<|channel|>final<|message|>Hello!<|return|>"), store=store)
    assert app.state.service.served.stores.responses._store is store  # what is measured for /metrics


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
