"""Makes the application of `serve`, in the order that takes the least time.

Takes settings and returns the application, perhaps after minutes. Work outside Python (loading torch's
libraries, preparing grammars) runs on threads of its own, while Python's imports go on here.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from gpt_oss_server.cli.commands.loading import load_engine
from gpt_oss_server.cli.commands.start_checks import check_context, check_start
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from inference.engine import Engine


class Start:
    """The engine and the application of one process, once `app` has made them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.engine: Engine | None = None

    def begin(self) -> None:
        """Starts what may run before the socket listens. Nothing that a start creates is garbage."""
        from inference.registry import runs_here

        gc.disable()
        self._runs_here = runs_here(self._settings.model)
        if self._runs_here:
            from inference.preload import preload_torch

            preload_torch()

    def app(self) -> FastAPI:
        """Raises `InferenceError`, `SettingsError` or `CommandLineError`."""
        try:
            from gpt_oss_server.app import create_app

            if self._runs_here:
                _prepare_grammars()
            check_start(self._settings)
            engine = load_engine(self._settings)
            self.engine = engine
            check_context(engine.info.context_length, self._settings)  # of a model without --context, too
            return create_app(engine, self._settings)
        finally:
            gc.enable()
            gc.freeze()  # the collector need not look at the modules again


def _prepare_grammars() -> None:
    from gpt_oss_server.constraints.binding import make_ready
    from gpt_oss_server.harmony.encoding import load_encoding

    make_ready(load_encoding())
