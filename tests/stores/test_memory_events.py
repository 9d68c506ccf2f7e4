"""The event logs in memory keep their contract; tests/turns/test_background_runs.py tests their bounds."""

from __future__ import annotations

from gpt_oss_server.stores.events import EventLogs
from gpt_oss_server.stores.memory_events import MemoryEventLogs
from tests.contracts.event_log_contract import EventLogContract


class TestMemoryEventLogs(EventLogContract):
    async def make(self) -> EventLogs:
        return MemoryEventLogs()
