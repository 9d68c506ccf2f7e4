"""What an operator may choose of how a model runs here. Imports no framework."""

from __future__ import annotations

from dataclasses import dataclass

MAX_WAITING = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """None leaves it to the machine."""

    max_concurrent: int | None = None  # requests that share a step
    max_waiting: int = MAX_WAITING  # requests that wait for their turn; more are turned away
    kv_memory: int | None = None  # bytes for keys and values
    speculation: bool = False  # drafts from what is in the prompt, checked by the model
