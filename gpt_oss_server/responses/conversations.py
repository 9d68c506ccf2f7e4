"""Conversations without HTTP: made, read, changed and deleted, with their items.

In: request bodies as decoded JSON, and ids. Out: the API's objects, or an `ApiError`. A conversation keeps
the segments that its items are in prompts, those of answers as they were sampled; only where an item is taken
out are they rendered anew. What a response adds is put here by `added`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpt_oss_server.errors import InvalidRequest, ItemNotFound
from gpt_oss_server.fields import Body, check_metadata, read_body
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.paging import page
from gpt_oss_server.responses.input import prefix_of, read_input
from gpt_oss_server.responses.past import find_conversation, no_conversation
from gpt_oss_server.responses.reading import Conversation
from gpt_oss_server.sealing import Sealer
from gpt_oss_server.served import LARGE_INPUT
from gpt_oss_server.stores.base import Item, Store, StoredConversation

_NOT_ON_THEIR_OWN = {
    "compaction_trigger": "It asks for a response: send it as a response's input.",
    "mcp_approval_response": "It makes a call, which only a response can: send it as a response's input.",
    "item_reference": "Send the item itself.",
}


class CreateConversation(Body):
    items: list[Any] | None = None
    metadata: dict[str, Any] | None = None


class UpdateConversation(Body):
    metadata: dict[str, Any] | None


class CreateItems(Body):
    items: list[Any]


class Conversations:
    def __init__(
        self,
        store: Store,
        renderer: Renderer,
        ids: Ids,
        clock: Callable[[], float],
        sealer: Callable[[], Sealer],
    ) -> None:
        self._store = store
        self._renderer = renderer
        self._ids = ids
        self._clock = clock
        self._sealer = sealer

    async def create(self, body: object) -> dict[str, Any]:
        given = read_body(body, CreateConversation, {}, '{"metadata": {"topic": "demo"}}')
        check_metadata(given.metadata)
        new = StoredConversation(self._ids("conv"), int(self._clock()), given.metadata or {})
        if given.items:
            read = await self._read(given.items, new)
            new = self._extended(new, read)
        await self._store.put_conversation(new)
        return _shown(new)

    async def retrieve(self, conversation_id: str) -> dict[str, Any]:
        return _shown(await find_conversation(self._store, conversation_id))

    async def update(self, conversation_id: str, body: object) -> dict[str, Any]:
        given = read_body(body, UpdateConversation, {}, '{"metadata": {"topic": "demo"}}')
        check_metadata(given.metadata)
        return _shown(
            await self._change(conversation_id, lambda found: replace(found, metadata=given.metadata or {}))
        )

    async def delete(self, conversation_id: str) -> dict[str, Any]:
        if not await self._store.delete_conversation(conversation_id):
            raise no_conversation(conversation_id)
        return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}

    async def items(self, conversation_id: str, query: Mapping[str, str]) -> dict[str, Any]:
        return page((await find_conversation(self._store, conversation_id)).items, query)

    async def add_items(self, conversation_id: str, body: object) -> dict[str, Any]:
        given = read_body(body, CreateItems, {}, '{"items": [{"role": "user", "content": "Hello"}]}')
        read = await self._read(given.items, await find_conversation(self._store, conversation_id))
        changed = await self._change(conversation_id, lambda found: self._extended(found, read))
        items = list(changed.items[len(changed.items) - len(read.items) :])
        first, last = (items[0]["id"], items[-1]["id"]) if items else (None, None)
        return {"object": "list", "data": items, "first_id": first, "last_id": last, "has_more": False}

    async def item(self, conversation_id: str, item_id: str) -> Item:
        for item in (await find_conversation(self._store, conversation_id)).items:
            if item["id"] == item_id:
                return item
        raise _no_item(conversation_id, item_id)

    async def delete_item(self, conversation_id: str, item_id: str) -> dict[str, Any]:
        return _shown(await self._change(conversation_id, lambda found: self._without(found, item_id)))

    async def added(
        self,
        conversation_id: str,
        items: Sequence[Item],
        segments: Sequence[Segment],
        recipients: Mapping[str, str],
        approvals: Mapping[str, tuple[str, str]],
    ) -> None:
        """What a response took in and gave out goes to the end. Nothing, if the conversation is gone."""

        answered = {item["approval_request_id"] for item in items if item["type"] == "mcp_approval_response"}

        def extended(found: StoredConversation) -> StoredConversation:
            waiting = {key: call for key, call in found.approvals.items() if key not in answered}
            return replace(
                found,
                items=(*found.items, *self._with_own_ids(items, found)),
                history=(*found.history, *segments),
                recipients={**found.recipients, **recipients},
                approvals={**waiting, **approvals},
            )

        await self._store.change_conversation(conversation_id, extended)

    async def _change(
        self, conversation_id: str, change: Callable[[StoredConversation], StoredConversation]
    ) -> StoredConversation:
        changed = await self._store.change_conversation(conversation_id, change)
        if changed is None:
            raise no_conversation(conversation_id)
        return changed

    async def _read(self, items: list[Any], found: StoredConversation) -> Conversation:
        for index, item in enumerate(items):
            kind = item.get("type") if isinstance(item, dict) else None
            if isinstance(kind, str) and kind in _NOT_ON_THEIR_OWN:
                why = _NOT_ON_THEIR_OWN[kind]
                raise InvalidRequest(
                    f"`items[{index}]`: a {kind} cannot be added to a conversation. {why}",
                    param=f"items[{index}].type",
                )

        def work() -> Conversation:
            return self._rendered(items, found.recipients, found.approvals)

        return await asyncio.to_thread(work) if len(str(items)) > LARGE_INPUT else work()

    def _rendered(
        self,
        items: list[Any],
        recipients: Mapping[str, str],
        approvals: Mapping[str, tuple[str, str]],
    ) -> Conversation:
        return read_input(
            items,
            self._renderer,
            self._ids,
            recipients=recipients,
            approvals=approvals,
            sealer=self._sealer,
            where="items",
        )

    def _extended(self, found: StoredConversation, read: Conversation) -> StoredConversation:
        return replace(
            found,
            items=(*found.items, *self._with_own_ids(read.items, found)),
            history=(*found.history, *read.segments),
            recipients={**found.recipients, **read.recipients},
            approvals={**found.approvals, **read.approvals},
        )

    def _with_own_ids(self, items: Sequence[Item], found: StoredConversation) -> list[Item]:
        """An id is that of one item: what comes a second time, as clients send it again, gets a new one."""
        taken = {item["id"] for item in found.items}
        own = []
        for item in items:
            fresh = item if item["id"] not in taken else {**item, "id": self._ids(prefix_of(item["type"]))}
            taken.add(fresh["id"])
            own.append(fresh)
        return own

    def _without(self, found: StoredConversation, item_id: str) -> StoredConversation:
        left = [item for item in found.items if item["id"] != item_id]
        if len(left) == len(found.items):
            raise _no_item(found.id, item_id)
        try:
            read = self._rendered(left, {}, {})
        except InvalidRequest as error:
            raise InvalidRequest(
                f"The item {item_id!r} cannot be deleted, as a later one needs it: {error.message}",
                param="item_id",
            ) from None
        return replace(
            found,
            items=tuple(left),
            history=tuple(read.segments),
            recipients=read.recipients,
            approvals=read.approvals,
        )


def _shown(conversation: StoredConversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": dict(conversation.metadata),
    }


def _no_item(conversation_id: str, item_id: str) -> ItemNotFound:
    return ItemNotFound(
        f"The conversation {conversation_id!r} has no item with id {item_id!r}.", param="item_id"
    )
