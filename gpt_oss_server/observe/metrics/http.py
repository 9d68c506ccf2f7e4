"""Figures of HTTP: requests by the template of their route, and how many are being answered.

Paths and methods that no route knows count as one, so that a client cannot make up new series.
"""

from __future__ import annotations

from starlette.types import Scope

from gpt_oss_server.http.not_found import template_of
from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figures

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
