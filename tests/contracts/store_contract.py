"""What every response store does. A store's test module subclasses this and makes the store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import Part, Store, StoredConversation, StoredResponse


def stored(response_id: str, *, text: str = "", tokens: int = 3) -> StoredResponse:
    return StoredResponse(
        response={"id": response_id, "object": "response", "output": [], "text": text},
        input_items=({"id": "msg_1", "type": "message", "role": "user", "content": []},),
        history=(Segment("user", tuple(range(tokens))),),
        recipients={"call_1": "functions.f"},
    )


def item(item_id: str, text: str = "") -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"id": item_id, "type": "message", "role": "user", "content": content}


def conversation(conversation_id: str, *item_ids: str, tokens: int = 3) -> StoredConversation:
    return StoredConversation(
        conversation_id,
        1_000,
        {"topic": "demo"},
        tuple(Part((item(item_id),), (Segment("user", tuple(range(tokens))),)) for item_id in item_ids),
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

    async def test_items_of_responses_are_found_by_their_ids(self) -> None:
        store = await self.make()
        given = StoredResponse({"id": "resp_1", "output": [item("msg_2")]}, (item("msg_1"),))
        await store.put(given)
        assert await store.item("msg_1") == item("msg_1")
        assert await store.item("msg_2") == item("msg_2")
        assert await store.item("msg_3") is None
        await store.delete("resp_1")
        assert await store.item("msg_1") is None
        await store.close()

    async def test_of_items_with_the_same_id_the_newest_is_found_while_it_is_there(self) -> None:
        store = await self.make()
        for number in range(3):
            await store.put(StoredResponse({"id": f"resp_{number}", "output": [item("msg", str(number))]}))
        assert await store.item("msg") == item("msg", "2")
        await store.delete("resp_2")
        assert await store.item("msg") == item("msg", "1")
        await store.delete("resp_0")
        assert await store.item("msg") == item("msg", "1")
        await store.delete("resp_1")
        assert await store.item("msg") is None
        await store.close()

    async def test_a_conversation_comes_back_whole_until_it_is_deleted(self) -> None:
        store = await self.make()
        await store.put_conversation(conversation("conv_1", "msg_1", "msg_2"))
        assert await store.get_conversation("conv_1") == conversation("conv_1", "msg_1", "msg_2")
        assert await store.get("conv_1") is None
        assert await store.item("msg_2") == item("msg_2")
        assert await store.delete_conversation("conv_1") is True
        assert await store.get_conversation("conv_1") is None
        assert await store.delete_conversation("conv_1") is False
        assert await store.item("msg_2") is None
        await store.close()

    async def test_a_conversation_is_changed_in_place(self) -> None:
        store = await self.make()
        await store.put_conversation(conversation("conv_1", "msg_1"))
        changed = await store.change_conversation(
            "conv_1", lambda found: replace(found, parts=(*found.parts[1:], Part((item("msg_2"),), ())))
        )
        assert changed is not None
        assert changed == await store.get_conversation("conv_1")
        assert [each["id"] for each in changed.items] == ["msg_2"]
        assert await store.item("msg_1") is None
        assert await store.item("msg_2") == item("msg_2")
        assert await store.change_conversation("conv_2", lambda found: found) is None
        await store.close()

    async def test_a_change_that_fails_changes_nothing(self) -> None:
        store = await self.make()
        await store.put_conversation(conversation("conv_1", "msg_1"))

        def fails(found: StoredConversation) -> StoredConversation:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await store.change_conversation("conv_1", fails)
        assert await store.get_conversation("conv_1") == conversation("conv_1", "msg_1")
        await store.close()
