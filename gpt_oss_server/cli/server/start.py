"""The start of a server: its settings checked before a request fails, its engine loaded, its app made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

from gpt_oss_server.cli.server.tools import check_tools
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.settings.options import AUTO

if TYPE_CHECKING:
    from fastapi import FastAPI

    from inference.engine import Engine
    from inference.on_demand import Pool


_NEEDS: dict[str, Callable[[Settings], object]] = {
    "postgres": lambda settings: settings.store.startswith("postgres"),
    "mcp": lambda settings: settings.mcp or settings.tool_server,
    "otel": lambda settings: settings.otel_endpoint,
    "browser": lambda settings: settings.browser not in (None, "off"),
    "exa": lambda settings: str(settings.browser).partition(":")[0] == "exa",
    "python": lambda settings: settings.python in ("bubblewrap", "unsafe-local"),
}
"""By extra, whether the settings need its packages."""


def check_packages(settings: Settings) -> None:
    """Raises `SettingsError` for a package that a setting needs, before anything is started."""
    from tools.extras import how_to_install, missing_package

    if error := missing_package(extra for extra, needs in _NEEDS.items() if needs(settings)):
        raise SettingsError(how_to_install(error))


class Start:
    """The engines and the application of one process. Torch and grammars load on threads meanwhile."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.engine: Engine | None = None
        self.further: dict[str, Engine] = {}

    def begin(self) -> None:
        """Starts what may run before the socket listens. Nothing that a start creates is garbage."""
        from inference.backends.table import runs_here

        gc.disable()
        each = (self._settings, *self._settings.by_model.values())
        self._runs_here = any(runs_here(own.model, own) for own in each)
        if self._runs_here:
            from inference.torch_start import preload_torch

            preload_torch()

    def app(self) -> FastAPI:
        """Raises `InferenceError`, `SettingsError` or `CommandLineError`."""
        try:
            from gpt_oss_server.app import create_app
            from inference.on_demand import Pool

            if self._runs_here:
                from gpt_oss_server.constraints.binding import make_ready
                from gpt_oss_server.harmony.encoding import load_encoding

                make_ready(load_encoding())
            check_start(self._settings)
            settings, models = self._settings, self._settings.by_model
            on_demand = any(own.idle_unload is not None for own in (settings, *models.values()))
            pool = Pool(settings.models_max) if on_demand or settings.models_max is not None else None
            self.engine = _load(settings, pool)
            self.further = {name: _load(own, pool, name) for name, own in models.items()}
            return create_app(self.engine, self._settings, models=self.further)
        finally:
            gc.enable()
            gc.freeze()  # the collector need not look at the modules again


def check_start(settings: Settings) -> None:
    from gpt_oss_server.embeddings import EndpointFailed, probed
    from gpt_oss_server.observe.telemetry.telemetry import check_telemetry
    from gpt_oss_server.runs.served import keyring_of
    from gpt_oss_server.stores.kinds.table import open_database
    from gpt_oss_server.stores.sealing import server_sealer
    from gpt_oss_server.toolset.offered import ToolsetMaker
    from gpt_oss_server.toolset.outside import known_kinds
    from inference.backends.table import is_checkpoint

    if settings.engine != AUTO and not is_checkpoint(settings.model):
        problem = f"--engine {settings.engine} is what runs a checkpoint, and {settings.model} is none."
        raise SettingsError(f"{problem} Leave one of them out.")
    kinds = known_kinds()
    for own in (settings, *settings.by_model.values()):
        check_context(own.context, own)
    if settings.needs_keys:
        keyring_of(settings, kinds)
    if settings.sealing_key_file is not None:
        server_sealer(settings.sealing_key_file)
    check_telemetry(settings)
    if settings.store != "memory":  # a model may load for minutes before it is opened
        asyncio.run(open_database(settings.store).close())
    try:
        asyncio.run(probed(settings))
    except EndpointFailed as error:
        raise SettingsError(f"{error} Start that server first, or leave the flag out.") from error
    ToolsetMaker(settings, kinds)  # raises for backends and servers that are named wrongly
    check_tools(settings)


def check_context(tokens: int | None, settings: Settings) -> None:
    """Raises `CommandLineError` for a context in which nothing fits; None: the model's, not known yet."""
    if tokens is None:
        return
    from gpt_oss_server.models.limits import least_context

    least = least_context(settings)
    if tokens >= least:
        return
    message = "the system message" if settings.identity is None else "the system message with its --identity"
    raise CommandLineError(
        f"A context of {tokens} tokens is too short to answer anything: {message}, a question of one word "
        f"and its answer take {least}. Give --context {least} or more, and thousands for conversations; "
        "without --context, it is the model's own."
    )


def _load(settings: Settings, pool: Pool | None, name: str = "") -> Engine:
    """With a pool, models that run here are loaded when they are needed."""
    from inference.backends.table import load_later, runs_here

    if pool is None or not runs_here(settings.model, settings):
        engine = load_engine(settings)
    else:
        engine = load_later(settings.model, settings, pool, idle=settings.idle_unload, name=name)
    check_context(engine.info.context_length, settings)  # the model's own, without --context
    return engine


def load_engine(settings: Settings, *, progress: bool | None = None) -> Engine:
    """Perhaps for minutes; a terminal then shows a bar. Raises `InferenceError`."""
    import inference
    from gpt_oss_server.cli.server.exported import with_gguf

    settings = with_gguf(settings, progress=progress)
    return inference.load(settings.model, options=settings, progress=progress)
