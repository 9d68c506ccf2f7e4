"""Holds requests over HTTP to their limits, and reports what is left of them in each answer.

A request that makes something (POST) counts. Reading, deleting and cancelling are free: a client at its limit
must be able to fetch its answers and to stop its runs.
"""

from dataclasses import replace

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpt_oss_server.caller.limiter import Limiter
from gpt_oss_server.errors import ApiError
from gpt_oss_server.http.answers import error_answer
from gpt_oss_server.http.edge import caller_of, set_caller

_FREE = "/cancel"


class LimitGuard:
    def __init__(self, app: ASGIApp, limiter: Limiter) -> None:
        self._app = app
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # each request of a WebSocket is admitted by itself
            await self._app(scope, receive, send)
            return
        caller = caller_of(scope)
        access = caller.access

        async def send_with_limits(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._limiter.headers(access))
            await send(message)

        send_on = send_with_limits if self._limiter.has_limits(access) else send
        if scope["method"] != "POST" or scope["path"].endswith(_FREE):
            await self._app(scope, receive, send_on)
            return
        try:
            admission = await self._limiter.admit(access)
        except ApiError as refusal:
            await error_answer(refusal)(scope, receive, send_on)
            return
        set_caller(scope, replace(caller, admission=admission))
        try:
            await self._app(scope, receive, send_on)
        finally:
            admission.close()
