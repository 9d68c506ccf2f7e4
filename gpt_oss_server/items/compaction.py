"""A compacted conversation, and the item that keeps it for the client.

Takes the summary and the messages that are kept verbatim, or a sealed item. Returns the segments that replace
the earlier ones, and a sealed item that can be read back. It must not know how a summary is written.
"""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Event, EventTexts, Item, WholeItem
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.kind import ItemKind, ItemType
from gpt_oss_server.stores.sealing import Sealer

_PREFIX = "cmp"
_PURPOSE = "compaction"
_INTRODUCTION = """\
What came before this was left out, as the conversation had grown too long. This is your own summary of it; \
go on from here.

"""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A conversation after its compaction."""

    instructions: tuple[str, ...]  # developer messages
    user_messages: tuple[str, ...]  # the newest
    summary: str

    def segments(self, renderer: Renderer) -> tuple[Segment, ...]:
        """The segments that replace the earlier ones."""
        segments = [
            *map(renderer.developer_message, self.instructions),
            *map(renderer.user, self.user_messages),
            renderer.user(_INTRODUCTION + self.summary),
        ]
        return (*segments[:-1], replace(segments[-1], stands_for=len(segments)))

    def sealed(self, sealer: Sealer) -> str:
        content = {"instructions": self.instructions, "said": self.user_messages, "summary": self.summary}
        return sealer.seal(_PURPOSE, json.dumps(content, ensure_ascii=False).encode())


def unsealed(sealer: Sealer, sealed: str) -> Compacted | None:
    """The compaction; None if this server did not seal the content as one."""
    content = sealer.open(_PURPOSE, sealed)
    if content is None:
        return None
    read = json.loads(content)  # valid: only this server can have sealed it
    return Compacted(tuple(read["instructions"]), tuple(read["said"]), read["summary"])


def compaction_item(ids: Ids, compacted: Compacted, sealer: Sealer) -> dict[str, str]:
    return {"id": ids(_PREFIX), "type": "compaction", "encrypted_content": compacted.sealed(sealer)}


class CompactionBuilder(WholeItem):
    about = "A summary that replaces everything before it in later prompts, sealed with the server's key."
    about_events: ClassVar[EventTexts] = {"response.compaction.compacting": "The model writes the summary."}

    def open(self) -> tuple[Item, list[Event]]:
        return {**self._item, "encrypted_content": ""}, [{"type": "response.compaction.compacting"}]


def _read(item: Item, where: str, conversation: Conversation) -> None:
    """A compaction by this server, which replaces everything before it."""
    compacted = unsealed(conversation.sealer, text_field(item, "encrypted_content", where))
    if compacted is None:
        raise InvalidRequest.at(
            f"{where}.encrypted_content",
            ": this server did not seal this compaction, or used another key "
            "(--sealing-key-file), or the content was changed. Send the items that it replaces.",
        )
    conversation.segments += compacted.segments(conversation.renderer)


def _read_context(item: Item, where: str, conversation: Conversation) -> None:
    """A compaction; one that the client wrote itself has no sealed content and adds nothing."""
    if item.get("encrypted_content") is not None:
        _read(item, where, conversation)


def _read_trigger(item: Item, where: str, conversation: Conversation) -> None:
    """The last item: the response is a compaction of what comes before it."""
    conversation.compacts = True


COMPACTION = ItemKind(
    (
        ItemType("compaction", _read, _PREFIX),
        ItemType("compaction_summary", _read),  # its name in older clients
        ItemType("context_compaction", _read_context),
        ItemType("compaction_trigger", _read_trigger),
    )
)
