"""The contract of every store of chat completions."""

from typing import Any

import pytest

from gpt_oss_server.stores.sql.completions import Completions, StoredCompletion
from gpt_oss_server.stores.sql.database import Database


def completion(number: int) -> StoredCompletion:
    message = {"id": f"msg_{number}", "role": "user", "content": "Hi \x00 🙂"}
    return StoredCompletion({"id": f"chatcmpl-{number}", "metadata": {}, "n": number}, (message,))


async def ids(store: Completions, after: str | None, most: int, newest_first: bool = False) -> Any:
    found = await store.page(after, most, newest_first=newest_first)
    return None if found is None else [each["id"][9:] for each in found]


class CompletionsContract:
    database: Database

    @pytest.fixture
    def store(self) -> Completions:
        return Completions(self.database)

    async def test_a_completion_is_kept_whole_until_it_is_deleted(self, store: Completions) -> None:
        await store.put(completion(1))
        assert await store.get("chatcmpl-1") == completion(1)
        assert await store.get("chatcmpl-2") is None
        assert await store.delete("chatcmpl-1") is True
        assert await store.get("chatcmpl-1") is None
        assert await store.delete("chatcmpl-1") is False

    async def test_pages_follow_each_other_in_both_orders(self, store: Completions) -> None:
        for number in range(5):
            await store.put(completion(number))
        assert await ids(store, None, 2) == ["0", "1"]
        assert await ids(store, "chatcmpl-1", 2) == ["2", "3"]
        assert await ids(store, "chatcmpl-3", 9) == ["4"]
        assert await ids(store, None, 2, newest_first=True) == ["4", "3"]
        assert await ids(store, "chatcmpl-3", 9, newest_first=True) == ["2", "1", "0"]
        assert await ids(store, "chatcmpl-9", 9, newest_first=True) is None

    async def test_setting_metadata_changes_nothing_else(self, store: Completions) -> None:
        await store.put(completion(1))
        changed = await store.set_metadata("chatcmpl-1", {"topic": "demo"})
        assert changed == completion(1).with_metadata({"topic": "demo"})
        assert await store.get("chatcmpl-1") == changed
        assert await store.set_metadata("chatcmpl-2", {}) is None

    async def test_an_owner_finds_its_own_completions_alone(self, store: Completions) -> None:
        alice, bob = store.of("alice"), store.of("bob")
        for number in range(4):
            await (alice if number % 2 else bob).put(completion(number))
        assert await ids(alice, None, 10) == ["1", "3"]
        assert await ids(bob, None, 10, newest_first=True) == ["2", "0"]
        assert await ids(store, None, 10, newest_first=True) == []
        assert await ids(alice, "chatcmpl-0", 10) is None
        assert await ids(alice, "chatcmpl-1", 10) == ["3"]
        assert await bob.get("chatcmpl-1") is None
        assert await bob.set_metadata("chatcmpl-1", {"a": "b"}) is None
        assert await bob.delete("chatcmpl-1") is False
        assert await alice.get("chatcmpl-1") == completion(1)
        assert await alice.used_bytes() == await bob.used_bytes() > 0
        assert await store.used_bytes() == 0
