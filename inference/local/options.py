"""The operator's choices for a local model. Imports no framework."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.models.precision import Precision

MAX_WAITING = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """None leaves the choice to the machine."""

    max_concurrent: int | None = None  # requests that share a step
    max_waiting: int = MAX_WAITING  # requests that wait for a slot; more are refused
    kv_memory: int | None = None  # bytes for keys and values
    precision: Precision = field(default_factory=Precision)
    speculation: bool = False  # drafts from the prompt, checked by the model
