"""The item of a compaction, which is made before the turn begins.

The sealed item comes in; it and its events go out. A compaction that fails is no item.
"""

from __future__ import annotations

from gpt_oss_server.item_builder import Event, Item, WholeItem


class CompactionBuilder(WholeItem):
    def open(self) -> tuple[Item, list[Event]]:
        return {**self._item, "encrypted_content": ""}, [{"type": "response.compaction.compacting"}]
