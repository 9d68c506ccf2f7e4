"""The store of one WebSocket: its responses with `store: false`, on top of the store for the others.

Unstored responses last as long as the connection lives and its bounds allow. A chain stays within one store:
if a turn's parent is in the other store, the turn begins a chain.
"""

from __future__ import annotations

import copy
from dataclasses import replace

from gpt_oss_server.stores.base import Append, Conversations, Item, Responses, StoredResponse
from gpt_oss_server.stores.chain import History, Position, UnknownParent
from gpt_oss_server.stores.memory.store import MemoryStore
from gpt_oss_server.stores.pages import ItemPage, Wanted

# A lane continues from its last response, and a new lane forks from a recent one.
MAX_RESPONSES = 256
MAX_BYTES = 64 * 2**20
_OWN = "connection:"  # the prefix of positions in the connection's own store


class ConnectionStore:
    def __init__(self, responses: Responses, conversations: Conversations) -> None:
        self._below, self._conversations = responses, conversations
        self._own = MemoryStore(max_responses=MAX_RESPONSES, max_bytes=MAX_BYTES, max_age=None)

    def of(self, owner: str) -> ConnectionStore:
        view = copy.copy(self)
        view._below, view._own = self._below.of(owner), self._own.of(owner)
        view._conversations = self._conversations.of(owner)
        return view

    async def used_bytes(self) -> int:
        return await self._own.used_bytes() + await self._below.used_bytes()

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        parent = stored.parent
        parent_is_own = parent is not None and parent.startswith(_OWN)
        if stored.response.get("store"):
            if parent_is_own:
                raise UnknownParent(parent)
            await self._below.put(stored, append)
            return
        if parent is not None and not parent_is_own:
            raise UnknownParent(parent)
        await self._own.put(replace(stored, parent=parent and parent.removeprefix(_OWN)))
        if append is not None:
            try:
                await self._conversations.append(append)
            except BaseException:
                await self._own.delete(stored.id)
                raise

    async def get(self, response_id: str) -> StoredResponse | None:
        own = await self._own.get(response_id)
        if own is None:
            return await self._below.get(response_id)
        return replace(own, parent=own.parent and _OWN + own.parent)

    async def input_page(self, response_id: str, wanted: Wanted) -> ItemPage | None:
        own = await self._own.input_page(response_id, wanted)
        return await self._below.input_page(response_id, wanted) if own is None else own

    async def history(self, response_id: str) -> History | None:
        own = await self._own.history(response_id)
        if own is None:
            return await self._below.history(response_id)
        return replace(own, position=own.position and _OWN + own.position)

    async def history_at(self, position: Position | None, session: str) -> History:
        if position is None or not position.startswith(_OWN):
            return await self._below.history_at(position, session)
        own = await self._own.history_at(position.removeprefix(_OWN), session)
        return replace(own, position=position)

    async def delete(self, response_id: str) -> bool:
        return await self._own.delete(response_id) or await self._below.delete(response_id)

    async def item(self, item_id: str) -> Item | None:
        return await self._own.item(item_id) or await self._below.item(item_id)

    async def result(self, item_id: str) -> str | None:
        return await self._own.result(item_id) or await self._below.result(item_id)

    async def forget(self, response_id: str) -> None:
        """Forgets a response of this connection. A stored response stays stored."""
        await self._own.delete(response_id)

    async def close(self) -> None:
        """Forgets all responses of the connection. The store below stays open."""
        await self._own.close()
