"""The past of a request: a stored response, a conversation or nothing, and the items that it references.

Takes a validated request and the store. Returns the `Past` whose segments begin the prompt, and the request
with each reference replaced by its item, or raises an error that names the missing id.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gpt_oss_server.apis.responses.request import CreateResponse
from gpt_oss_server.errors import ConversationNotFound, InvalidRequest, ItemNotFound, PreviousResponseNotFound
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import Item, Responses
from gpt_oss_server.stores.chain import Addition, Call, History, Position
from gpt_oss_server.stores.kinds.keep import Keep

T = TypeVar("T")
CONVERSATION = "conv"  # the prefix of conversations' ids


@dataclass(frozen=True, slots=True)
class Past:
    history: tuple[Segment, ...] = ()
    recipients: Mapping[str, str] = field(default_factory=dict)  # call_id → Harmony recipient
    approvals: Mapping[str, Call] = field(default_factory=dict)  # request id → call that awaits approval
    results: Mapping[str, str] = field(default_factory=dict)  # of the calls that `input` references
    session: str = ""  # the key of the tools' sessions; "": no session continues
    position: Position | None = None  # where the history ends in the store

    def added(
        self, segments: Iterable[Segment], recipients: Mapping[str, str], approvals: Mapping[str, Call]
    ) -> Addition:
        """A turn's addition to this past, from its segments and the state of all calls after it."""
        return Addition(
            tuple(segments),
            {call_id: to for call_id, to in recipients.items() if self.recipients.get(call_id) != to},
            {key: call for key, call in approvals.items() if self.approvals.get(key) != call},
            tuple(key for key in self.approvals if key not in approvals),
        )


async def past_of(request: CreateResponse, keep: Keep) -> Past:
    conversation_id, response_id = request.conversation_id, request.previous_response_id
    if conversation_id is not None:
        history = await keep.conversations.conversation_history(conversation_id)
        return past_from(found(history, conversation_id))
    if response_id is None:
        return Past()
    history = await keep.responses.history(response_id)
    if history is None:
        raise PreviousResponseNotFound(
            f"No response with id {response_id!r} is stored, so it cannot be continued. It may have "
            "expired, been deleted, or been created with store=false. Send the whole conversation.",
            param="previous_response_id",
        )
    return past_from(history)


def past_from(history: History) -> Past:
    return Past(
        history.segments,
        history.recipients,
        history.approvals,
        session=history.session,
        position=history.position,
    )


def found(stored: T | None, conversation_id: str) -> T:
    """What the store has of a conversation; raises if it has no such conversation."""
    if stored is not None:
        return stored
    if not conversation_id.startswith(CONVERSATION):
        raise InvalidRequest(
            f"{conversation_id!r:.80} is no id of a conversation: these begin with '{CONVERSATION}_'. "
            "POST /v1/conversations creates one.",
            param="conversation",
        )
    raise ConversationNotFound(
        f"There is no conversation with id {conversation_id!r}. It may have expired or been deleted.",
        param="conversation",
    )


async def with_references(request: CreateResponse, store: Responses) -> tuple[CreateResponse, dict[str, str]]:
    """The request with each reference in its input replaced by its item, and the results of referenced calls.

    The results, by item id, are the texts that the model read of calls that this server ran: the items hold
    little of them.
    """
    sent = request.input
    if not isinstance(sent, list) or not any(map(_is_reference, sent)):
        return request, {}
    items: list[Any] = []
    results: dict[str, str] = {}
    for index, item in enumerate(sent):
        if not _is_reference(item):
            items.append(item)
            continue
        items.append(await _referred(item, f"input[{index}]", store))
        if (result := await store.result(item["id"])) is not None:
            results[item["id"]] = result
    return request.model_copy(update={"input": items}), results


def _is_reference(item: Any) -> bool:
    """A reference may omit its type; it then has nothing but an id."""
    if not isinstance(item, dict):
        return False
    kind = item.get("type")
    return kind == "item_reference" or (kind is None and item.keys() - {"type"} == {"id"})


async def _referred(reference: Mapping[str, Any], where: str, store: Responses) -> Mapping[str, Any]:
    item_id = reference.get("id")
    if not isinstance(item_id, str) or not item_id:
        raise InvalidRequest.at(f"{where}.id", "must be the id of an item, e.g. 'msg_…'.")
    item = await store.item(item_id)
    if item is None:
        raise ItemNotFound.at(
            where,
            f": no item with id {item_id!r} is stored. Items are not kept where store=false, and "
            "expire with their response. Send the item itself.",
        )
    return item


async def past_user_messages(request: CreateResponse, keep: Keep) -> list[Item]:
    """The user's stored messages in the past of a request, from the last compaction on."""
    items: list[Item] = []
    if (conversation_id := request.conversation_id) is not None:
        parts = found(await keep.conversations.conversation_parts(conversation_id), conversation_id)
        items = [item for part in parts for item in part.items]
    response_id = request.previous_response_id
    while response_id is not None and (stored := await keep.responses.get(response_id)) is not None:
        items[:0] = stored.items
        if any(map(_is_compaction, stored.items)):
            break
        response_id = stored.response["previous_response_id"]
    last = max((index for index, item in enumerate(items) if _is_compaction(item)), default=-1)
    return [item for item in items[last + 1 :] if is_user_message(item)]


def is_user_message(item: Item) -> bool:
    return item.get("type") == "message" and item.get("role") == "user"


def _is_compaction(item: Item) -> bool:
    return item.get("type") in ("compaction", "compaction_summary")
