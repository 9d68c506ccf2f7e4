"""The labels of a request: headers by which other programs' engines, routers and traces know it.

Takes the scope of a request. Returns those of its headers that are sent along, and `LABELS` holds them, with
the request's id, for all work of the request. What a label means is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType

from starlette.types import Scope

NO_LABELS: Mapping[str, str] = MappingProxyType({})
LABELS: ContextVar[Mapping[str, str]] = ContextVar("labels", default=NO_LABELS)
SESSION = "x-session-id"  # requests of one session go to one machine
_SENT_ALONG = {name.encode(): name for name in (SESSION, "traceparent", "tracestate")}
_FIT = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,510}[\x21-\x7e])?")


def labels_of(scope: Scope) -> dict[str, str]:
    given = (
        (_SENT_ALONG[name], value.decode("latin-1"))
        for name, value in scope["headers"]
        if name in _SENT_ALONG
    )
    return {name: value for name, value in given if _FIT.fullmatch(value)}


def with_session(labels: Mapping[str, str], session: str | None) -> Mapping[str, str]:
    """The labels with a session, unless the client named one."""
    if not session or SESSION in labels or not _FIT.fullmatch(session):
        return labels
    return {**labels, SESSION: session}
