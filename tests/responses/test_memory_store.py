"""The memory store keeps its contract and its bounds."""

from __future__ import annotations

from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.memory import MemoryStore, size_of
from tests.contracts.store_contract import StoreContract, stored


class TestMemoryStore(StoreContract):
    async def make(self) -> Store:
        return MemoryStore()


async def test_the_oldest_go_when_there_are_too_many() -> None:
    store = MemoryStore(max_responses=2)
    for number in range(4):
        await store.put(stored(f"resp_{number}"))
    assert [await store.get(f"resp_{n}") is not None for n in range(4)] == [False, False, True, True]


async def test_the_oldest_go_when_they_take_too_many_bytes() -> None:
    each = size_of(stored("resp_0", tokens=1_000))
    store = MemoryStore(max_bytes=3 * each)
    for number in range(9):
        await store.put(stored(f"resp_{number}", tokens=1_000))
    assert len(store) == 3
    assert store.bytes <= 3 * each


async def test_they_go_when_they_are_too_old() -> None:
    now = 0.0
    store = MemoryStore(max_age=10, clock=lambda: now)
    await store.put(stored("resp_1"))
    now = 9.0
    assert await store.get("resp_1") is not None
    now = 10.0
    assert await store.get("resp_1") is None
    assert store.bytes == 0


async def test_bytes_are_given_back() -> None:
    store = MemoryStore()
    for _ in range(3):
        await store.put(stored("resp_1", tokens=50))
    await store.delete("resp_1")
    assert (len(store), store.bytes) == (0, 0)
