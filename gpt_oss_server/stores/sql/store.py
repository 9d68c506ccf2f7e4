"""Responses and conversations in a database, as `stores/base` states. Each call is one transaction."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, TypeVarTuple

from gpt_oss_server.stores.base import Append, ConversationPart, Item, StoredConversation, StoredResponse
from gpt_oss_server.stores.chain import History, Position
from gpt_oss_server.stores.pages import ItemPage, Wanted
from gpt_oss_server.stores.sql import conversations
from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.conversations import Added
from gpt_oss_server.stores.sql.database import Database, Transaction
from gpt_oss_server.stores.sql.items import (
    end_of_conversation,
    item_of_conversation,
    page_of_conversation,
    page_of_input,
)
from gpt_oss_server.stores.sql.links import Links, link_number
from gpt_oss_server.stores.sql.owned import Owned
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
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SqlStore(Owned):
    def __init__(self, database: Database, *, guard: Guard | None = None) -> None:
        """`guard` raises where another process now holds the run of a response."""
        super().__init__(database)
        self._guard = guard
        self._links = Links()

    async def used_bytes(self) -> int:
        return await self._read(owner_bytes)

    # --- responses ---------------------------------------------------------------------------------

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        encoded = EncodedResponse.of(stored, self._owner)

        def work(tx: Transaction, owner: str) -> list[Added]:
            if self._guard is not None:
                self._guard(tx, stored.id)
            position = put_response(tx, encoded)
            appended = None if append is None else conversations.append_parts(tx, owner, append)
            of_parts = [] if appended is None else appended[1]
            return [*of_parts, (position, encoded.parent, stored.added, len(encoded.added))]

        self._remember(await self._write(work))

    async def get(self, response_id: str) -> StoredResponse | None:
        return await self._read(get_response, response_id)

    async def input_page(self, response_id: str, wanted: Wanted) -> ItemPage | None:
        return await self._read(page_of_input, response_id, wanted)

    async def history(self, response_id: str) -> History | None:
        def work(tx: Transaction, owner: str) -> History | None:
            end = end_of_response(tx, owner, response_id)
            return None if end is None else self._links.history(tx, *end)

        return await self._read(work)

    async def history_at(self, position: Position | None, session: str) -> History:
        """The history up to a position that is held."""
        return await self._read(lambda tx, owner: self._links.history(tx, link_number(position), session))

    async def delete(self, response_id: str) -> bool:
        return await self._write(lambda tx, owner: delete_response(tx, key_of(response_id), owner))

    async def item(self, item_id: str) -> Item | None:
        return await self._read(find_item, item_id)

    async def result(self, item_id: str) -> str | None:
        return await self._read(find_result, item_id)

    # --- conversations -----------------------------------------------------------------------------

    async def put_conversation(
        self, conversation: StoredConversation, parts: Sequence[ConversationPart] = ()
    ) -> None:
        new = replace(conversation, owner=self._owner)
        self._remember(await self._write(lambda tx, owner: conversations.put_conversation(tx, new, parts)))

    async def get_conversation(self, conversation_id: str) -> StoredConversation | None:
        return await self._read(conversations.get_conversation, conversation_id)

    async def conversation_page(self, conversation_id: str, wanted: Wanted) -> ItemPage | None:
        return await self._read(page_of_conversation, conversation_id, wanted)

    async def conversation_item(self, conversation_id: str, item_id: str) -> Item | None:
        return await self._read(item_of_conversation, conversation_id, item_id)

    async def conversation_parts(self, conversation_id: str) -> tuple[ConversationPart, ...] | None:
        return await self._read(conversations.read_parts, conversation_id)

    async def conversation_history(self, conversation_id: str) -> History | None:
        def work(tx: Transaction, owner: str) -> History | None:
            end = end_of_conversation(tx, owner, conversation_id)
            return None if end is None else self._links.history(tx, end[0], conversation_id)

        return await self._read(work)

    async def append(self, append: Append) -> tuple[Item, ...] | None:
        appended = await self._write(conversations.append_parts, append)
        items, links = appended or (None, ())
        self._remember(links)
        return items

    async def set_metadata(
        self, conversation_id: str, metadata: Mapping[str, Any]
    ) -> StoredConversation | None:
        return await self._write(conversations.set_metadata, conversation_id, metadata)

    async def rewrite_conversation(
        self, conversation_id: str, version: int, parts: Sequence[ConversationPart]
    ) -> bool:
        links = await self._write(conversations.rewrite_conversation, conversation_id, version, parts)
        self._remember(links or ())
        return links is not None

    async def delete_conversation(self, conversation_id: str) -> bool:
        delete, key = conversations.delete_conversation, key_of(conversation_id)
        return await self._write(lambda tx, owner: delete(tx, key, owner))

    async def close(self) -> None:
        await self.database.close()

    async def _read(self, work: Callable[[Transaction, str, *Ts], T], *args: *Ts) -> T:
        return await self.database.read(lambda tx: work(tx, self._owner, *args))

    async def _write(self, work: Callable[[Transaction, str, *Ts], T], *args: *Ts) -> T:
        return await self.database.write(lambda tx: work(tx, self._owner, *args))

    def _remember(self, links: Sequence[Added]) -> None:
        for position, parent, added, size in links:
            self._links.remember(position, parent, added, size)
