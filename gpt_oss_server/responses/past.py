"""What a request goes on from: a stored response, a conversation, or nothing; and the items it refers to.

In: a validated request and the store. Out: the `Past` whose segments come first in the prompt, and the
request with each reference replaced by the item that it names; or an error that says which id is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.errors import ConversationNotFound, InvalidRequest, ItemNotFound, PreviousResponseNotFound
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.responses.request import CreateResponse
from gpt_oss_server.stores.base import Item, Store, StoredConversation


@dataclass(frozen=True, slots=True)
class Past:
    history: tuple[Segment, ...] = ()
    recipients: Mapping[str, str] = field(default_factory=dict)  # call_id → Harmony recipient
    approvals: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of calls that wait
    results: Mapping[str, str] = field(default_factory=dict)  # of the calls that `input` refers to
    session: str = ""  # what the tools' sessions are kept under; "": nothing is continued


async def past_of(request: CreateResponse, store: Store) -> Past:
    if request.conversation_id is not None:
        found = await find_conversation(store, request.conversation_id)
        return Past(found.history, found.recipients, found.approvals, session=found.id)
    response_id = request.previous_response_id
    if response_id is None:
        return Past()
    stored = await store.get(response_id)
    if stored is None:
        raise PreviousResponseNotFound(
            f"No response with id {response_id!r} is stored, so it cannot be continued. It may have "
            "expired, been deleted, or been created with store=false. Send the whole conversation.",
            param="previous_response_id",
        )
    return Past(stored.history, stored.recipients, stored.approvals, session=stored.conversation)


async def find_conversation(store: Store, conversation_id: str) -> StoredConversation:
    found = await store.get_conversation(conversation_id)
    if found is None:
        raise no_conversation(conversation_id)
    return found


def no_conversation(conversation_id: str) -> ConversationNotFound:
    return ConversationNotFound(
        f"There is no conversation with id {conversation_id!r}. It may have expired or been deleted.",
        param="conversation",
    )


async def with_references(request: CreateResponse, store: Store) -> tuple[CreateResponse, dict[str, str]]:
    """The request, each reference in its input replaced by the item that it names.

    And what the model read of those that are calls made here, by their ids: of that the items tell little.
    """
    given = request.input
    if not isinstance(given, list) or not any(map(_is_reference, given)):
        return request, {}
    items: list[Any] = []
    results: dict[str, str] = {}
    for index, item in enumerate(given):
        if not _is_reference(item):
            items.append(item)
            continue
        items.append(await _referred(item, f"input[{index}]", store))
        if (result := await store.result(item["id"])) is not None:
            results[item["id"]] = result
    return request.model_copy(update={"input": items}), results


def _is_reference(item: Any) -> bool:
    """The type may be left out: then the id is all there is."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


async def _referred(reference: Mapping[str, Any], where: str, store: Store) -> Mapping[str, Any]:
    item_id = reference.get("id")
    if not isinstance(item_id, str) or not item_id:
        raise InvalidRequest(f"`{where}.id` must be the id of an item, e.g. 'msg_…'.", param=f"{where}.id")
    item = await store.item(item_id)
    if item is None:
        raise ItemNotFound(
            f"`{where}`: no item with id {item_id!r} is stored. Items are not kept where store=false, and "
            "expire with their response. Send the item itself.",
            param=where,
        )
    return item


async def said_so_far(request: CreateResponse, store: Store) -> list[Item]:
    """The user's messages in what a request goes on from, as far as they are stored and not compacted yet."""
    if request.conversation_id is not None:
        return _said_since_compaction((await find_conversation(store, request.conversation_id)).items)
    items: list[Item] = []
    response_id = request.previous_response_id
    while response_id is not None and (stored := await store.get(response_id)) is not None:
        items[:0] = stored.items
        if any(map(_is_compaction, stored.items)):
            break
        response_id = stored.response["previous_response_id"]
    return _said_since_compaction(items)


def _said_since_compaction(items: Sequence[Item]) -> list[Item]:
    last = max((place for place, item in enumerate(items) if _is_compaction(item)), default=-1)
    return [item for item in items[last + 1 :] if is_said(item)]


def is_said(item: Item) -> bool:
    """Whether it is a message of the user's."""
    return item.get("type") == "message" and item.get("role") == "user"


def _is_compaction(item: Item) -> bool:
    return item.get("type") in ("compaction", "compaction_summary")
