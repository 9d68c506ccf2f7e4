"""The item of a compaction, which runs before the turn begins.

Takes the sealed item and returns it with its events. A failed compaction has no item.
"""

from __future__ import annotations

from typing import ClassVar

from gpt_oss_server.items.builder import Event, EventTexts, Item, WholeItem


class CompactionBuilder(WholeItem):
    about = "A summary that replaces everything before it in later prompts, sealed with the server's key."
    about_events: ClassVar[EventTexts] = {"response.compaction.compacting": "The model writes the summary."}

    def open(self) -> tuple[Item, list[Event]]:
        return {**self._item, "encrypted_content": ""}, [{"type": "response.compaction.compacting"}]
