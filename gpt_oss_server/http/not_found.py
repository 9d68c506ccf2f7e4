"""The errors for a path that does not exist, or that does not take a method.

In: the application's routes and a requested path. Out: the methods that it takes, and the path that the
client probably means: most often its base URL lacks the `/v1`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.routing import BaseRoute, Match

_METHODS = ("GET", "HEAD", "POST", "DELETE")  # of all routes


def methods_of(routes: Sequence[BaseRoute], path: str) -> list[str]:
    return [method for method in _METHODS if any(_takes(route, method, path) for route in routes)]


def meant(routes: Sequence[BaseRoute], path: str, method: str) -> str | None:
    """The path that would have been there."""
    plain = re.sub("/{2,}", "/", path)
    for candidate in (
        plain,
        f"/v1{plain}",
        re.sub("^(/v1)+", "/v1", plain),
        re.sub("^/.*?/v1/", "/v1/", plain),
    ):
        if candidate != path and any(_takes(route, method, candidate) for route in routes):
            return candidate
    return None


def _takes(route: BaseRoute, method: str, path: str) -> bool:
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return route.matches(scope)[0] is Match.FULL
