"""The route of WebSocket mode: decides which clients may connect.

Serves connections to `/v1/responses`. Refuses others with 426 if WebSocket is switched off, so that clients
continue over HTTP; with 403 for web pages that may not use the server, because browsers let any page connect;
with 404 for other paths.
"""

from fastapi import APIRouter, Request, WebSocket
from starlette.responses import Response

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.apis.responses.socket.connection import SocketConnection
from gpt_oss_server.errors import MethodNotAllowed, NotFound, UpgradeRequired
from gpt_oss_server.http.connections.sub_protocols import chosen
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.guards.hosts import refuse
from gpt_oss_server.http.guards.origins import Origins


def socket_router(service: ResponsesService, origins: Origins) -> APIRouter:
    router = APIRouter()
    served = service.served.settings.websocket

    @router.websocket("/v1/responses")
    async def connect(socket: WebSocket) -> None:
        refusal = origins.refusal(socket.headers) if served else _switched_off()
        if refusal is not None:
            await refuse(refusal, socket.scope, socket.receive, socket.send)
            return
        await socket.accept(subprotocol=chosen(socket.scope["subprotocols"]))
        caller = caller_of(socket.scope)
        await SocketConnection(service, caller, socket._receive, socket._send, socket.scope["state"]).serve()

    @router.websocket("/{path:path}")
    async def elsewhere(socket: WebSocket, path: str) -> None:
        missing = NotFound(f"There is no WebSocket at /{path}; /v1/responses has one.")
        refusal = origins.refusal(socket.headers) or missing
        await refuse(refusal, socket.scope, socket.receive, socket.send)

    @router.get("/v1/responses", include_in_schema=False)
    async def not_a_socket(request: Request) -> Response:
        """An upgrade where WebSocket is switched off, or a plain GET: this path has no list."""
        if not served and "upgrade" in request.headers:
            raise _switched_off()
        if served:
            raise UpgradeRequired("GET here opens a WebSocket; GET /v1/responses/{id} is a stored response.")
        raise MethodNotAllowed("/v1/responses", "GET", ["POST"])

    return router


def _switched_off() -> UpgradeRequired:
    return UpgradeRequired("WebSocket is switched off on this server (--websocket). Use POST /v1/responses.")
