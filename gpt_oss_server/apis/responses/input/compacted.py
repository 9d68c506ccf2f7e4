"""A compacted conversation, and the item that keeps it for the client.

Takes the summary and the messages that are kept verbatim. Returns the segments that replace the earlier ones,
and a sealed item that can be read back. It must not know how a summary is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.stores.sealing import Sealer

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
        content = {
            "instructions": self.instructions,
            "said": self.user_messages,
            "summary": self.summary,
        }
        return sealer.seal(_PURPOSE, json.dumps(content, ensure_ascii=False).encode())


def unsealed(sealer: Sealer, sealed: str) -> Compacted | None:
    """The compaction; None if this server did not seal the content as one."""
    content = sealer.open(_PURPOSE, sealed)
    if content is None:
        return None
    read = json.loads(content)  # valid: only this server can have sealed it
    return Compacted(tuple(read["instructions"]), tuple(read["said"]), read["summary"])


def compaction_item(ids: Ids, compacted: Compacted, sealer: Sealer) -> dict[str, str]:
    return {"id": ids("cmp"), "type": "compaction", "encrypted_content": compacted.sealed(sealer)}
