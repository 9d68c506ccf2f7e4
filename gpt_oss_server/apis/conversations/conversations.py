"""Conversations without HTTP: creates, reads, updates and deletes them and their items.

Takes request bodies as decoded JSON, and ids. Returns the API's objects or raises an `ApiError`. A
conversation keeps the prompt segments of its items, those of answers exactly as sampled. Deleting an item
renders the other items of its part again. `append` builds a response's addition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpt_oss_server.apis.responses.input import read_input
from gpt_oss_server.apis.responses.past import CONVERSATION, Past, found, past_from
from gpt_oss_server.apis.responses.storage import appended
from gpt_oss_server.apis.responses.stored import listed
from gpt_oss_server.content.parts import treat_images
from gpt_oss_server.errors import InvalidRequest, ItemNotFound
from gpt_oss_server.http.fields import Body, optional, read_body, required
from gpt_oss_server.http.large_work import in_thread, in_thread_if_large
from gpt_oss_server.http.paging import list_of
from gpt_oss_server.http.shared_fields import check_metadata
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.runs.attached import with_files
from gpt_oss_server.runs.served import check_stored
from gpt_oss_server.runs.work import Work
from gpt_oss_server.stores.base import ConversationPart, Item, StoredConversation
from gpt_oss_server.stores.chain import Addition

_NOT_ADDABLE = {
    "compaction_trigger": "It requests a response: send it as a response's input.",
    "item_reference": "Send the item itself.",
}


class CreateConversation(Body):
    items: list[Any] | None = optional("The items that the conversation begins with.")
    metadata: dict[str, Any] | None = optional("Up to 16 texts that are kept with the conversation.")


class UpdateConversation(Body):
    metadata: dict[str, Any] | None = required("The texts that replace the present ones.")


class CreateItems(Body):
    items: list[Any] = required("The items to add.")


class Conversations:
    """Those of one caller."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._store = work.keep.conversations

    async def create(self, body: object) -> dict[str, Any]:
        request = read_body(body, CreateConversation, '{"metadata": {"topic": "demo"}}')
        check_metadata(request.metadata)
        await check_stored(self._work.caller, self._work.keep)
        created = int(self._work.clock())
        new = StoredConversation(self._work.ids(CONVERSATION), created, request.metadata or {})
        items = await with_files(request.items or [], "items", self._work)
        parts = [await self._read(items, Past())] if items else []
        await self._store.put_conversation(new, parts)
        return _shown(new)

    async def retrieve(self, conversation_id: str) -> dict[str, Any]:
        return _shown(await self._find(conversation_id))

    async def update(self, conversation_id: str, body: object) -> dict[str, Any]:
        request = read_body(body, UpdateConversation, '{"metadata": {"topic": "demo"}}')
        check_metadata(request.metadata)
        changed = await self._store.set_metadata(conversation_id, request.metadata or {})
        return _shown(found(changed, conversation_id))

    async def delete(self, conversation_id: str) -> dict[str, Any]:
        found(await self._store.delete_conversation(conversation_id) or None, conversation_id)
        return {"id": conversation_id, "object": "conversation.deleted", "deleted": True}

    async def items(self, conversation_id: str, query: Mapping[str, str]) -> dict[str, Any]:
        listing = await listed(lambda wanted: self._store.conversation_page(conversation_id, wanted), query)
        return found(listing, conversation_id)

    async def add_items(self, conversation_id: str, body: object) -> dict[str, Any]:
        request = read_body(body, CreateItems, '{"items": [{"role": "user", "content": "Hello"}]}')
        await check_stored(self._work.caller, self._work.keep)
        items = await with_files(request.items, "items", self._work)
        part = await self._read(items, await self._calls_before(conversation_id, items))
        added = await self._store.append(appended(conversation_id, [part], self._work.kinds, self._work.ids))
        return list_of(found(added, conversation_id), has_more=False)

    async def item(self, conversation_id: str, item_id: str) -> Item:
        item = await self._store.conversation_item(conversation_id, item_id)
        if item is None:
            await self._find(conversation_id)
            raise _no_item(conversation_id, item_id)
        return item

    async def delete_item(self, conversation_id: str, item_id: str) -> dict[str, Any]:
        while True:
            conversation = await self._find(conversation_id)  # first, so that the parts are at least as new
            parts = found(await self._store.conversation_parts(conversation_id), conversation_id)
            left = await in_thread(0, partial(self._without, conversation_id, parts, item_id))
            if await self._store.rewrite_conversation(conversation_id, conversation.version, left):
                return _shown(conversation)

    async def _find(self, conversation_id: str) -> StoredConversation:
        return found(await self._store.get_conversation(conversation_id), conversation_id)

    async def _calls_before(self, conversation_id: str, items: list[Any]) -> Past:
        """The calls of a conversation that new items may concern; messages concern none."""
        if all(_kind_of(item) in (None, "message", "reasoning") for item in items):  # none is a call
            await self._find(conversation_id)
            return Past()
        history = found(await self._store.conversation_history(conversation_id), conversation_id)
        return past_from(replace(history, segments=()))

    async def _read(self, items: list[Any], past: Past) -> ConversationPart:
        for index, item in enumerate(items):
            kind = _kind_of(item)
            if isinstance(kind, str) and (why := _NOT_ADDABLE.get(kind)):
                problem = f"`items[{index}]`: a {kind} cannot be added to a conversation. {why}"
                raise InvalidRequest(problem, param=f"items[{index}].type")
        treat_images(items, "items", self._work.model.settings.images)

        render = partial(self._rendered, items, past)
        read = await in_thread_if_large(self._work.caller.body_size, render, items)
        if read.approved:
            waiting = read.approved[0].request_id
            raise InvalidRequest.at(
                "items",
                f": the mcp_approval_response to {waiting!r} cannot be added to a conversation: it "
                "makes a call, as only a response can. Send it as a response's input, or with its mcp_call.",
            )
        return ConversationPart(tuple(read.items), past.added(read.segments, read.recipients, read.approvals))

    def _rendered(self, items: list[Any], past: Past) -> Conversation:
        return read_input(items, self._work, past, where="items", is_whole=False)

    def _without(
        self, conversation_id: str, parts: Sequence[ConversationPart], item_id: str
    ) -> list[ConversationPart]:
        """The parts without the item.

        Its own part is rendered again, because segments do not name their item. The other parts stay, because
        few items hold a tool's result, so items alone do not suffice to render them. Their items are read,
        as a later one may need the deleted one.
        """
        at = next((n for n, part in enumerate(parts) if item_id in [item["id"] for item in part.items]), None)
        if at is None:
            raise _no_item(conversation_id, item_id)
        before = sum(len(part.items) for part in parts[:at])
        left = tuple(item for item in parts[at].items if item["id"] != item_id)
        others = (part for part in parts if part is not parts[at])
        items = [item for part in others for item in part.items]
        items[before:before] = left
        try:
            read = self._rendered(items, Past())
        except InvalidRequest as error:
            raise InvalidRequest(
                f"The item {item_id!r} cannot be deleted, because a later one needs it: {error.message}",
                param="item_id",
            ) from None
        of_part = range(before, before + len(left))
        sourced = zip(read.segments, read.sources, strict=True)
        rendered = Addition(tuple(segment for segment, source in sourced if source in of_part))
        changed = [ConversationPart(part.items, Addition(part.added.segments)) for part in parts]
        changed[at : at + 1] = [ConversationPart(left, rendered)] if left else []
        if changed:  # the calls that all items contain now replace those of the parts
            calls = Addition(changed[0].added.segments, read.recipients, read.approvals)
            changed[0] = ConversationPart(changed[0].items, calls)
        return changed


def _kind_of(item: Any) -> Any:
    """The `type` that the client sent; None also where the item is no object."""
    return item.get("type") if isinstance(item, dict) else None


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
