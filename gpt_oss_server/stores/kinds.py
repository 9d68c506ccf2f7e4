"""The kinds of stores, one row each; opens the store that the `--store` setting names.

Takes the settings. Returns the stores of responses, conversations and the events of background runs. A new
kind needs a module that implements `Store` and `EventLogs`, a row here, and its name in the setting's row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.events import EventLogs
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.stores.memory_events import MemoryEventLogs


@dataclass(frozen=True, slots=True)
class Stores:
    """All stores of one server."""

    responses: Store  # also of conversations
    events: EventLogs  # of background runs

    async def close(self) -> None:
        await self.events.close()
        await self.responses.close()


def stores_of(settings: Settings, responses: Store | None = None) -> Stores:
    """The stores that the settings name, or the caller's own store with event logs in memory."""
    if responses is None:  # compared with None, as an empty store is falsy
        return open_store(settings.store, settings)
    return Stores(responses, _event_logs_in_memory(settings))


def open_store(place: str, settings: Settings) -> Stores:
    """Opens the store at `place`, such as `memory`."""
    opens = KINDS.get(place.partition(":")[0])
    if opens is None:
        raise SettingsError(f"store must be {' or '.join(KINDS)}, not {place!r}.")
    return opens(place, settings)


def _in_memory(place: str, settings: Settings) -> Stores:
    if place != "memory":
        raise SettingsError(f"store must be memory without a place, not {place!r}.")
    responses = MemoryStore(
        max_responses=settings.store_max_responses,
        max_conversations=settings.store_max_conversations,
        max_bytes=settings.store_max_bytes,
        max_age=settings.store_max_age,
    )
    return Stores(responses, _event_logs_in_memory(settings))


def _event_logs_in_memory(settings: Settings) -> MemoryEventLogs:
    return MemoryEventLogs(
        max_bytes=settings.background_log_max_bytes, max_age=settings.background_log_max_age
    )


KINDS: dict[str, Callable[[str, Settings], Stores]] = {
    "memory": _in_memory,
}
"""The opener of each kind, by the part of the setting before the first colon."""
