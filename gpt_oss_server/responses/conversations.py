"""Conversations without HTTP: made, read, changed and deleted, with their items.

In: request bodies as decoded JSON, and ids. Out: the API's objects, or an `ApiError`. A conversation keeps
the segments that its items are in prompts, those of answers as they were sampled. Where an item is taken out,
what came together with it is rendered anew. What a response adds is put here by `added`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpt_oss_server.errors import InvalidRequest, ItemNotFound
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.fields import Body, read_body
from gpt_oss_server.http.paging import page
from gpt_oss_server.http.shared_fields import check_metadata
from gpt_oss_server.ids import Ids
from gpt_oss_server.responses.input.listing import with_own_ids
from gpt_oss_server.responses.input.reader import read_input
from gpt_oss_server.responses.input.reading import Conversation
from gpt_oss_server.responses.past import find_conversation, no_conversation
from gpt_oss_server.serving.served import beside_others
from gpt_oss_server.stores.base import Item, Part, Store, StoredConversation
from gpt_oss_server.stores.sealing import Sealer

_NOT_ON_THEIR_OWN = {
    "compaction_trigger": "It asks for a response: send it as a response's input.",
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
            new = self._with_read(new, read)
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
        changed = await self._change(conversation_id, lambda found: self._with_read(found, read))
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
        parts: Sequence[Part],
        recipients: Mapping[str, str],
        approvals: Mapping[str, tuple[str, str]],
    ) -> None:
        """What a response took in and gave out goes to the end. Nothing, if the conversation is gone."""

        def extended(found: StoredConversation) -> StoredConversation:
            return self._extended(found, parts, recipients, approvals)

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

        read = await beside_others(work, items)
        if read.approved:
            waiting = read.approved[0].request_id
            raise InvalidRequest(
                f"`items`: the mcp_approval_response to {waiting!r} cannot be added to a conversation: it "
                "makes a call, as only a response can. Send it as a response's input, or with its mcp_call.",
                param="items",
            )
        return read

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

    def _with_read(self, found: StoredConversation, read: Conversation) -> StoredConversation:
        part = Part(tuple(read.items), tuple(read.segments))
        return self._extended(found, [part], read.recipients, read.approvals)

    def _extended(
        self,
        found: StoredConversation,
        parts: Sequence[Part],
        recipients: Mapping[str, str],
        approvals: Mapping[str, tuple[str, str]],
    ) -> StoredConversation:
        """Of the `approvals` those that are asked for here: the others may have been answered meanwhile."""
        items = [item for part in parts for item in part.items]
        answered = {item["approval_request_id"] for item in items if item["type"] == "mcp_approval_response"}
        asked = {item["id"] for item in items if item["type"] == "mcp_approval_request"}
        waiting = {key: call for key, call in found.approvals.items() if key not in answered}
        return replace(
            found,
            parts=(*found.parts, *self._with_own_ids(parts, found)),
            recipients={**found.recipients, **recipients},
            approvals={**waiting, **{key: call for key, call in approvals.items() if key in asked}},
        )

    def _with_own_ids(self, parts: Sequence[Part], found: StoredConversation) -> list[Part]:
        taken = {item["id"] for item in found.items}
        return [replace(part, items=tuple(with_own_ids(part.items, taken, self._ids))) for part in parts]

    def _without(self, found: StoredConversation, item_id: str) -> StoredConversation:
        """What came together with the item is rendered anew, for its segments are not told apart; no more is.

        From the items alone not all can be: what a tool told the model is in few of them.
        """
        place = next((n for n, part in enumerate(found.parts) if _has(part, item_id)), None)
        if place is None:
            raise _no_item(found.id, item_id)
        before = sum(len(part.items) for part in found.parts[:place])
        left = tuple(item for item in found.parts[place].items if item["id"] != item_id)
        changed = [*found.parts[:place], Part(left, ()), *found.parts[place + 1 :]]
        try:  # all of it, since a later item may need the one that goes
            read = self._rendered([item for part in changed for item in part.items], {}, {})
        except InvalidRequest as error:
            raise InvalidRequest(
                f"The item {item_id!r} cannot be deleted, as a later one needs it: {error.message}",
                param="item_id",
            ) from None
        of_part = range(before, before + len(left))
        made = zip(read.segments, read.sources, strict=True)
        segments = tuple(segment for segment, source in made if source in of_part)
        changed[place : place + 1] = [Part(left, segments)] if left else []
        return replace(found, parts=tuple(changed), recipients=read.recipients, approvals=read.approvals)


def _has(part: Part, item_id: str) -> bool:
    return any(item["id"] == item_id for item in part.items)


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
