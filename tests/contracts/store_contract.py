"""What every response store does. A store's test module subclasses this and makes the store."""

from __future__ import annotations

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import Store, StoredResponse


def stored(response_id: str, *, text: str = "", tokens: int = 3) -> StoredResponse:
    return StoredResponse(
        response={"id": response_id, "object": "response", "output": [], "text": text},
        input_items=({"id": "msg_1", "type": "message", "role": "user", "content": []},),
        history=(Segment("user", tuple(range(tokens))),),
        own_segments=1,
        recipients={"call_1": "functions.f"},
    )


class StoreContract:
    async def make(self) -> Store:
        raise NotImplementedError

    async def test_what_was_put_comes_back_whole(self) -> None:
        store = await self.make()
        await store.put(stored("resp_1"))
        assert await store.get("resp_1") == stored("resp_1")
        await store.close()

    async def test_an_unknown_id_is_none_and_nothing_to_delete(self) -> None:
        store = await self.make()
        assert await store.get("resp_1") is None
        assert await store.delete("resp_1") is False
        await store.close()

    async def test_what_was_deleted_is_gone_and_the_rest_is_not(self) -> None:
        store = await self.make()
        await store.put(stored("resp_1"))
        await store.put(stored("resp_2"))
        assert await store.delete("resp_1") is True
        assert await store.get("resp_1") is None
        assert await store.get("resp_2") is not None
        await store.close()

    async def test_the_same_id_again_replaces(self) -> None:
        store = await self.make()
        await store.put(stored("resp_1", text="old"))
        await store.put(stored("resp_1", text="new"))
        got = await store.get("resp_1")
        assert got is not None
        assert got.response["text"] == "new"
        await store.close()
