"""WebSockets: uvicorn's, except that their runs may finish when the server stops.

Takes connections from uvicorn and passes them to the application, with two differences: the application
receives a message when the server stops and closes the connection itself, and a refusal is a complete answer.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gpt_oss_server.http.connections.sub_protocols import SERVER_STOPS


class SocketProtocol(WebSocketsSansIOProtocol):
    def shutdown(self) -> None:
        """Notifies the application, where uvicorn would close; the server's grace period limits its time."""
        if self.handshake_complete and not self.close_sent:
            self.stop_keepalive()
            self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVER_STOPS})
        else:
            super().shutdown()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # otherwise uvicorn logs an incomplete handshake as an error
