"""The engine that the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from inference.engine import Engine


def load_engine(settings: Settings) -> Engine:
    """May take minutes, and shows its progress. Raises `InferenceError`, whose text is a sentence."""
    import inference

    device = None if settings.device == "auto" else settings.device
    return inference.load(settings.model, device=device, context=settings.context)
