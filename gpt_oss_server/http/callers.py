"""The caller of a request, made at the edge of its scope: its connection, its labels, and when it arrived.

The guards inside of the edge add what they know: the key's access, the admission. Routes and sockets take it
from the scope.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from starlette.types import Scope

from gpt_oss_server.caller.caller import SESSION, Caller, is_label

_CONNECTION, _CALLER = "connection", "caller"  # in the state of a scope
_SENT_ALONG = {name.encode(): name for name in (SESSION, "traceparent", "tracestate")}
_numbers = itertools.count(1)


def new_connection() -> str:
    """A name that no other connection has had. Addresses and ports are used again by others."""
    return f"connection {next(_numbers)}"


def set_connection(scope: Scope, connection: str) -> None:
    scope["state"][_CONNECTION] = connection


def make_caller(scope: Scope, header: str, request_id: str) -> Caller:
    """The caller of a request that has just arrived; its id is a label too, under the name of its header."""
    labels = {header: request_id}
    for name, value in scope["headers"]:
        if name in _SENT_ALONG and is_label(text := value.decode("latin-1")):
            labels[_SENT_ALONG[name]] = text
    caller = Caller(client=_connection(scope), labels=labels, arrived=time.monotonic())
    set_caller(scope, caller)
    return caller


def set_caller(scope: Scope, caller: Caller) -> None:
    scope.setdefault("state", {})[_CALLER] = caller


def caller_of(scope: Scope) -> Caller:
    caller: Any = scope["state"][_CALLER]
    assert isinstance(caller, Caller)
    return caller


def _connection(scope: Scope) -> str:
    """Servers other than this project's tell only the client's address."""
    known = scope.get("state", {}).get(_CONNECTION)
    return str(known or ":".join(map(str, scope.get("client") or ("unknown",))))
