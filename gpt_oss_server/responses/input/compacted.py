"""What is left of a conversation that was compacted, and the item that keeps it for the client.

In: the summary, and what is kept beside it word for word. Out: the segments that stand for all that came
before, and a sealed item, from which the same comes back. How the summary is made is not known here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.ids import Ids
from gpt_oss_server.stores.sealing import Sealer

_PURPOSE = "compaction"
_TOLD = """\
What came before this was left out, as the conversation had grown too long. This is your own summary of it; \
go on from here.

"""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What is left of a conversation."""

    instructions: tuple[str, ...]  # developer messages
    said: tuple[str, ...]  # the user's newest messages
    summary: str

    def segments(self, renderer: Renderer) -> tuple[Segment, ...]:
        """What stands for all that came before."""
        told = [
            *map(renderer.developer_message, self.instructions),
            *map(renderer.user, self.said),
            renderer.user(_TOLD + self.summary),
        ]
        return (*told[:-1], replace(told[-1], stands_for=len(told)))

    def sealed(self, sealer: Sealer) -> str:
        content = {"instructions": self.instructions, "said": self.said, "summary": self.summary}
        return sealer.seal(_PURPOSE, json.dumps(content, ensure_ascii=False).encode())


def unsealed(sealer: Sealer, sealed: str) -> Compacted | None:
    """None where it was not sealed by us, as a compaction."""
    content = sealer.open(_PURPOSE, sealed)
    if content is None:
        return None
    read = json.loads(content)  # ours: nobody else could have sealed it
    return Compacted(tuple(read["instructions"]), tuple(read["said"]), read["summary"])


def compaction_item(ids: Ids, compacted: Compacted, sealer: Sealer) -> dict[str, str]:
    return {"id": ids("cmp"), "type": "compaction", "encrypted_content": compacted.sealed(sealer)}
