"""A store that converts each record to JSON and back before it stores it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.stores.base import Append, ConversationPart, Item, StoredConversation, StoredResponse
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.memory import MemoryStore


def written(record: Any) -> Any:
    """The fields of a record after a round trip through JSON."""
    fields = asdict(record)
    fields.pop("trace", None)  # bytes already
    return json.loads(json.dumps(fields, allow_nan=False))


def read_addition(fields: dict[str, Any]) -> Addition:
    segments = (
        Segment(**{**each, "tokens": tuple(each["tokens"]), "tools": tuple(each["tools"])})
        for each in fields["segments"]
    )
    approvals = {key: (recipient, arguments) for key, (recipient, arguments) in fields["approvals"].items()}
    return Addition(tuple(segments), fields["recipients"], approvals, tuple(fields["answered"]))


def read_part(fields: dict[str, Any]) -> ConversationPart:
    return ConversationPart(tuple(fields["items"]), read_addition(fields["added"]))


def read_response(fields: dict[str, Any]) -> StoredResponse:
    items, added = tuple(fields["input_items"]), read_addition(fields["added"])
    return StoredResponse(**{**fields, "input_items": items, "added": added})


def _parts(parts: Sequence[ConversationPart]) -> tuple[ConversationPart, ...]:
    return tuple(read_part(written(part)) for part in parts)


class WrittenStore(MemoryStore):
    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        append = append and replace(append, parts=_parts(append.parts))
        await super().put(read_response(written(stored)), append)

    async def put_conversation(
        self, conversation: StoredConversation, parts: Sequence[ConversationPart] = ()
    ) -> None:
        await super().put_conversation(StoredConversation(**written(conversation)), _parts(parts))

    async def append(self, append: Append) -> tuple[Item, ...] | None:
        return await super().append(replace(append, parts=_parts(append.parts)))

    async def rewrite_conversation(
        self, conversation_id: str, version: int, parts: Sequence[ConversationPart]
    ) -> bool:
        return await super().rewrite_conversation(conversation_id, version, _parts(parts))
