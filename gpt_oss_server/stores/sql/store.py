"""Responses and conversations in a database.

Takes and returns records, as `stores/base` states. Each call is one transaction.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from gpt_oss_server.stores.base import Append, ConversationPart, Item, StoredConversation, StoredResponse
from gpt_oss_server.stores.chain import History, Position
from gpt_oss_server.stores.pages import ItemPage, Wanted
from gpt_oss_server.stores.sql import conversations
from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.conversations import Added
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.items import item_of_conversation, page_of_conversation, page_of_input
from gpt_oss_server.stores.sql.links import Links, link_number
from gpt_oss_server.stores.sql.responses import (
    EncodedResponse,
    delete_response,
    end_of_response,
    find_item,
    find_result,
    get_response,
    put_response,
)
from gpt_oss_server.stores.sql.sizes import owner_bytes

Guard = Callable[[Transaction, str], None]


def _unguarded(tx: Transaction, response_id: str) -> None:
    """Any response may be stored."""


class SqlStore:
    def __init__(self, database: Database, *, guard: Guard = _unguarded) -> None:
        """`guard` raises where another process now holds the run of a response."""
        self.database = database
        self._guard = guard
        self._links = Links()
        self._owner = ""

    def of(self, owner: str) -> Self:
        if owner == self._owner:
            return self
        seen = copy.copy(self)  # shares all but the owner
        seen._owner = owner
        return seen

    async def used_bytes(self) -> int:
        return await self.database.read(lambda tx: owner_bytes(tx, self._owner))

    # --- responses ---------------------------------------------------------------------------------

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        encoded = EncodedResponse.of(stored, self._owner)

        def work(tx: Transaction) -> list[Added]:
            self._guard(tx, stored.id)
            position = put_response(tx, encoded)
            appended = None if append is None else conversations.append_parts(tx, append, self._owner)
            of_parts = [] if appended is None else appended[1]
            return [*of_parts, (position, encoded.parent, stored.added, len(encoded.added))]

        self._remember(await self.database.write(work))

    async def get(self, response_id: str) -> StoredResponse | None:
        return await self.database.read(lambda tx: get_response(tx, response_id, self._owner))

    async def input_page(self, response_id: str, wanted: Wanted) -> ItemPage | None:
        return await self.database.read(lambda tx: page_of_input(tx, response_id, self._owner, wanted))

    async def history(self, response_id: str) -> History | None:
        def work(tx: Transaction) -> History | None:
            end = end_of_response(tx, response_id, self._owner)
            return None if end is None else self._links.history(tx, *end)

        return await self.database.read(work)

    async def history_at(self, position: Position | None, session: str) -> History:
        """The history up to a position that is held."""
        return await self.database.read(lambda tx: self._links.history(tx, link_number(position), session))

    async def delete(self, response_id: str) -> bool:
        return await self.database.write(lambda tx: delete_response(tx, key_of(response_id), self._owner))

    async def item(self, item_id: str) -> Item | None:
        return await self.database.read(lambda tx: find_item(tx, item_id, self._owner))

    async def result(self, item_id: str) -> str | None:
        return await self.database.read(lambda tx: find_result(tx, item_id, self._owner))

    # --- conversations -----------------------------------------------------------------------------

    async def put_conversation(
        self, conversation: StoredConversation, parts: Sequence[ConversationPart] = ()
    ) -> None:
        new = replace(conversation, owner=self._owner)
        self._remember(await self.database.write(lambda tx: conversations.put_conversation(tx, new, parts)))

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None:
        return await self.database.read(
            lambda tx: conversations.get_conversation(tx, conversation_id, self._owner)
        )

    async def conversation_items(self, conversation_id: str) -> tuple[Item, ...] | None:
        return await self.database.read(lambda tx: conversations.read_items(tx, conversation_id, self._owner))

    async def conversation_page(self, conversation_id: str, wanted: Wanted) -> ItemPage | None:
        def work(tx: Transaction) -> ItemPage | None:
            if conversations.end_of_conversation(tx, conversation_id, self._owner) is None:
                return None
            return page_of_conversation(tx, conversation_id, self._owner, wanted)

        return await self.database.read(work)

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item | None:
        def work(tx: Transaction) -> Item | None:
            if conversations.end_of_conversation(tx, conversation_id, self._owner) is None:
                return None
            return item_of_conversation(tx, conversation_id, self._owner, item_id)

        return await self.database.read(work)

    async def conversation_parts(self, conversation_id: str) -> tuple[ConversationPart, ...] | None:
        return await self.database.read(lambda tx: conversations.read_parts(tx, conversation_id, self._owner))

    async def conversation_history(self, conversation_id: str) -> History | None:
        def work(tx: Transaction) -> History | None:
            end = conversations.end_of_conversation(tx, conversation_id, self._owner)
            return None if end is None else self._links.history(tx, end[0], conversation_id)

        return await self.database.read(work)

    async def conversation_calls(self, conversation_id: str) -> History | None:
        def work(tx: Transaction) -> History | None:
            end = conversations.end_of_conversation(tx, conversation_id, self._owner)
            return None if end is None else self._links.calls(tx, end[0], conversation_id)

        return await self.database.read(work)

    async def append(self, append: Append) -> tuple[Item, ...] | None:
        appended = await self.database.write(lambda tx: conversations.append_parts(tx, append, self._owner))
        if appended is None:
            return None
        items, links = appended
        self._remember(links)
        return items

    async def set_metadata(
        self, conversation_id: str, metadata: Mapping[str, Any]
    ) -> StoredConversation | None:
        return await self.database.write(
            lambda tx: conversations.set_metadata(tx, conversation_id, self._owner, metadata)
        )

    async def rewrite_conversation(
        self, conversation_id: str, version: int, parts: Sequence[ConversationPart]
    ) -> bool:
        links = await self.database.write(
            lambda tx: conversations.rewrite_conversation(tx, conversation_id, self._owner, version, parts)
        )
        self._remember(links or ())
        return links is not None

    async def delete_conversation(self, conversation_id: str) -> bool:
        return await self.database.write(
            lambda tx: conversations.delete_conversation(tx, key_of(conversation_id), self._owner)
        )

    async def close(self) -> None:
        await self.database.close()

    def _remember(self, links: Sequence[Added]) -> None:
        for position, parent, added, size in links:
            self._links.remember(position, parent, added, size)
