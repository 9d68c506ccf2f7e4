"""All figures of one server: what was counted, and what its parts know when Prometheus asks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from starlette.types import Scope

from gpt_oss_server import __version__
from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.harmony.events import SlipKind
from gpt_oss_server.http.guards.keys import Outcome
from gpt_oss_server.http.not_found import template_of
from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figure, Figures, Histogram, Labels, Value
from gpt_oss_server.observe.metrics.runs import RunFigures
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.base import Statistics
from gpt_oss_server.turns.repetition import WarningKind

if TYPE_CHECKING:
    from gpt_oss_server.observe.metrics.exposition import Exposition

_SIZE_IS_FRESH = 30.0  # seconds: a database counts its rows for it
_log = logging.getLogger(__name__)


class Metrics:
    def __init__(self, names: str) -> None:
        """`names`: `own`, `vllm` or `both`."""
        self.figures = Figures()
        self.http = HttpFigures(self.figures)
        self.runs = RunFigures(self.figures)
        self.loop_lag = LoopLag(self.figures)
        for outcome in get_args(Outcome):  # Prometheus would not see the first of a new series
            self.figures.add(table.WRONG_KEYS, 0, (outcome,))
        self._names = names
        self._exposition: Exposition | None = None
        self._size: Statistics | None = None
        self._sized_at = float("-inf")
        self._sizing: asyncio.Task[None] | None = None

    def on_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        self.figures.add(table.TOOL_CALLS, labels=(tool, outcome))
        self.figures.observe(table.TOOL_SECONDS, seconds, (tool,))

    def on_wrong_key(self, outcome: Outcome) -> None:
        self.figures.add(table.WRONG_KEYS, labels=(outcome,))

    async def text(self, served: Served, background: Callable[[], int], accept: str) -> tuple[bytes, str]:
        """What Prometheus reads, and its media type."""
        await self._size_store(served)
        if self._exposition is None:
            # On a thread, and once something reads the figures: importing its package takes a while.
            module = await asyncio.to_thread(import_module, "gpt_oss_server.observe.metrics.exposition")
            self._exposition = module.Exposition(lambda: self.values(served, background()), self._names)
        return self._exposition.text(accept)

    def values(self, served: Served, background: int) -> Mapping[Figure, Mapping[Labels, Value]]:
        self.runs.look()
        counted = {figure: self.figures.values(figure) for figure in table.TABLE if figure not in _READ}
        return {
            **counted,
            table.SERVER: {(__version__, model.name): 1 for model in served.models.all},
            table.OUTPUT_TOKENS: self._output_tokens(),
            table.DISCONNECTS: {(): served.counters.cancelled},
            table.SLIPS: {(kind,): served.counters.slips[kind] for kind in _SLIPS},
            table.HTTP_RUNNING: {(): self.http.requests},
            table.SOCKETS: {(): self.http.sockets},
            table.BACKGROUND: {(): background},
            table.TOOL_SESSIONS: {(tool,): count for tool, count in served.tool_sessions().items()},
            **self._of_engine(served),
            **self._of_store(),
        }

    def _output_tokens(self) -> dict[Labels, Value]:
        ended = self.figures.values(table.OUTPUT_TOKENS)
        tokens = Counter({of: value for of, value in ended.items() if not isinstance(value, Histogram)})
        return dict(tokens + self.runs.running_tokens())

    def _of_engine(self, served: Served) -> dict[Figure, Mapping[Labels, Value]]:
        """An engine that reports nothing has at least the generations that run for this server."""
        figures: dict[Figure, dict[Labels, Value]] = {}
        for model in served.models.all:
            measures = {"running": self.runs.generating(model.name), **model.counters()}
            for name, value in measures.items():
                if name in table.ENGINE:
                    figures.setdefault(table.ENGINE[name], {})[(model.name,)] = value
        return {**figures}

    def _of_store(self) -> dict[Figure, Mapping[Labels, Value]]:
        if (size := self._size) is None:
            return {}
        objects: dict[Labels, Value] = {("response",): size.responses, ("conversation",): size.conversations}
        return {table.STORED: objects, table.STORED_BYTES: {(): size.bytes}}

    async def _size_store(self, served: Served) -> None:
        """Asks the store what it holds, from time to time. Only the first caller waits for the answer."""
        is_sizing = self._sizing is not None and not self._sizing.done()
        if is_sizing or time.monotonic() - self._sized_at < _SIZE_IS_FRESH:
            return
        self._sizing = asyncio.create_task(self._ask_store(served))
        if self._size is None:
            await asyncio.wait({self._sizing}, timeout=1.0)

    async def _ask_store(self, served: Served) -> None:
        if served.stores.size is None:
            return
        try:
            self._size = await served.stores.size()
        except StoreUnavailable as error:  # a figure that is missing is better than none of them
            self._size = None
            _log.warning("The size of the store is unknown: %s", error)
        self._sized_at = time.monotonic()


_SLIPS = (*map(str, SlipKind), *map(str, WarningKind))
_READ = {table.SERVER, table.STORED, table.STORED_BYTES, table.TOOL_SESSIONS, *table.ENGINE.values()}
"""Figures whose values are read elsewhere, and are left out if nothing knows them."""


_PAUSE = 0.25  # seconds


class LoopLag:
    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Call it in the event loop."""
        loop = asyncio.get_running_loop()
        self._wait(loop, loop.time())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        due = now + _PAUSE
        self._timer = loop.call_at(due, self._observe, loop, due)

    def _observe(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        now = loop.time()
        self._figures.observe(table.LOOP_LAG, max(0.0, now - due))
        self._wait(loop, now)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ROUTE = "none"


class HttpFigures:
    """An `EdgeObserver`."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self.requests = 0
        self.sockets = 0

    def began(self, scope: Scope) -> None:
        if scope["type"] == "websocket":
            self.sockets += 1
        else:
            self.requests += 1

    def ended(self, scope: Scope, status: int, seconds: float) -> None:
        if scope["type"] == "websocket":
            self.sockets -= 1
            return
        self.requests -= 1
        route = _route_of(scope)
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._figures.add(table.HTTP_REQUESTS, labels=(method, route, str(status)))
        self._figures.observe(table.HTTP_SECONDS, seconds, (route,))


def _route_of(scope: Scope) -> str:
    """The template of the route, which a request that a guard refuses has not reached."""
    if "route" in scope:
        return getattr(scope["route"], "path", _NO_ROUTE)
    if "app" not in scope:
        return _NO_ROUTE
    return template_of(scope["app"].routes, scope["path"], scope["method"]) or _NO_ROUTE
