"""The kinds of stores, one row each, and the way from the `--store` setting to an open store.

In: the settings. Out: where responses, conversations and the events of background runs are kept. To add a
kind: a module that implements `Store` and `EventLogs`, a row here, and its name in the setting's row.
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
    """All that one server keeps between requests."""

    responses: Store  # and conversations
    events: EventLogs  # of background runs

    async def close(self) -> None:
        await self.events.close()
        await self.responses.close()


def stores_of(settings: Settings, responses: Store | None = None) -> Stores:
    """The stores that the settings name, or a store of the caller's with the event logs in memory."""
    if responses is None:  # an empty store is false, as its length is 0
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
        raise SettingsError(f"store: memory has no place, so it cannot be {place!r}. Write memory alone.")
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
"""How each kind is opened, by the part of the setting before the first colon."""
