"""WebSockets of our HTTP server: uvicorn's, which let what runs on them finish when the server stops.

In: connections that uvicorn hands over. Out: the same to the application, but for two things: it is told of
the server's end, and closes the connection itself; and a refusal is a whole answer.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

SERVER_STOPS = 1012


class SocketProtocol(WebSocketsSansIOProtocol):
    def shutdown(self) -> None:
        """uvicorn would cut the connection; how long the application may take, the server's grace says."""
        if self.handshake_complete and not self.close_sent:
            self.stop_keepalive()
            self.queue.put_nowait({"type": "websocket.disconnect", "code": SERVER_STOPS})
        else:
            super().shutdown()

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True  # or uvicorn logs an error: that it was never completed
