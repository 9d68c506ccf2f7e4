"""The bounds of a store in a database, from the settings."""

from __future__ import annotations

from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.sql.sweeper import Bounds


def bounds_of(settings: Settings) -> Bounds:
    return Bounds(
        responses=settings.store_max_responses,
        conversations=settings.store_max_conversations,
        bytes=settings.store_max_bytes,
        age=settings.store_max_age,
        conversation_age=settings.store_max_conversation_age,
        log_bytes=settings.background_log_max_bytes,
        log_age=settings.background_log_max_age,
        trace_bytes=settings.trace_max_bytes,
    )
