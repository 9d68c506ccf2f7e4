"""The item of a compaction, which runs before the turn begins.

Takes the sealed item and returns it with its events. A failed compaction has no item.
"""

from __future__ import annotations

from gpt_oss_server.item_builder import Event, Item, WholeItem


class CompactionBuilder(WholeItem):
    def open(self) -> tuple[Item, list[Event]]:
        return {**self._item, "encrypted_content": ""}, [{"type": "response.compaction.compacting"}]
