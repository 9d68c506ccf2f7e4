"""Loads the engine that the settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from inference.engine import Engine


def load_engine(settings: Settings) -> Engine:
    """Loads the engine and shows progress, perhaps for minutes. Raises `InferenceError`."""
    import inference
    from inference.local.options import LocalOptions
    from inference.models.precision import Precision
    from inference.remote.address import RemoteOptions

    device = None if settings.device == "auto" else settings.device
    options = LocalOptions(
        max_concurrent=settings.max_concurrent,
        max_waiting=settings.max_waiting,
        kv_memory=settings.kv_memory,
        precision=Precision(weights=settings.weights, kv=settings.kv_dtype),
        speculation=settings.speculation is True,
        draft_head=_draft_head(settings.speculation),
    )
    remote = RemoteOptions(
        key=settings.engine_key,
        connect_timeout=settings.engine_connect_timeout,
        idle_timeout=settings.engine_idle_timeout,
    )
    return inference.load(
        settings.model, device=device, context=settings.context, options=options, remote=remote
    )


def _draft_head(speculation: bool | str) -> str | None:
    """The folder of `eagle:FOLDER`."""
    return speculation.partition(":")[2] if isinstance(speculation, str) else None
