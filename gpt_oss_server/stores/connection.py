"""What one connection remembers: its responses with `store: false`, beside the store that keeps the others.

In: responses of one WebSocket. Out: the same, by id: those that are not kept for as long as the connection
lives and its bounds allow, the others as the store below has them, also those of other connections.
"""

from __future__ import annotations

from collections.abc import Callable

from gpt_oss_server.stores.base import Item, Store, StoredConversation, StoredResponse
from gpt_oss_server.stores.memory import MemoryStore

# A lane goes on from its last response, and a new lane forks from a recent one.
MAX_RESPONSES = 256
MAX_BYTES = 64 * 2**20


class ConnectionStore:
    def __init__(self, below: Store) -> None:
        self._below = below
        self._own = MemoryStore(max_responses=MAX_RESPONSES, max_bytes=MAX_BYTES, max_age=float("inf"))

    async def put(self, stored: StoredResponse) -> None:
        await (self._below if stored.response.get("store") else self._own).put(stored)

    async def get(self, response_id: str) -> StoredResponse | None:
        return await self._own.get(response_id) or await self._below.get(response_id)

    async def delete(self, response_id: str) -> bool:
        return await self._own.delete(response_id) or await self._below.delete(response_id)

    async def item(self, item_id: str) -> Item | None:
        return await self._own.item(item_id) or await self._below.item(item_id)

    async def result(self, item_id: str) -> str | None:
        return await self._own.result(item_id) or await self._below.result(item_id)

    async def put_conversation(self, conversation: StoredConversation) -> None:
        await self._below.put_conversation(conversation)

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None:
        return await self._below.get_conversation(conversation_id)

    async def change_conversation(
        self, conversation_id: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation | None:
        return await self._below.change_conversation(conversation_id, change)

    async def delete_conversation(self, conversation_id: str) -> bool:
        return await self._below.delete_conversation(conversation_id)

    async def forget(self, response_id: str) -> None:
        """No longer remembered by the connection; what is kept below stays."""
        await self._own.delete(response_id)

    async def close(self) -> None:
        """The connection ends; the store below goes on."""
        await self._own.close()
