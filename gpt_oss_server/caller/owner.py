"""The owner of a request: the client that its work counts for.

Takes the scope of a request. Returns a name, which the work of the request inherits: the engine shares its
slots among owners, and a list of containers has only the owner's. Today the owner is the connection; whatever
knows better whom a request is from, such as a check of keys, sets `OWNER` inside of `Edge`.
"""

from __future__ import annotations

import itertools
from contextvars import ContextVar

from starlette.types import Scope

OWNER: ContextVar[str] = ContextVar("owner", default="")
_CONNECTION = "connection"  # in the state of a scope
_numbers = itertools.count(1)


def new_connection() -> str:
    """A name that no other connection has had. Addresses and ports are used again by others."""
    return f"connection {next(_numbers)}"


def set_connection(scope: Scope, connection: str) -> None:
    scope["state"][_CONNECTION] = connection


def owner_of(scope: Scope) -> str:
    """The connection of a request. Servers other than this project's tell only the client's address."""
    known = scope.get("state", {}).get(_CONNECTION)
    return str(known or ":".join(map(str, scope.get("client") or ("unknown",))))
