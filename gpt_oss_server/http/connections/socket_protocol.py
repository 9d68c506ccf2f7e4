"""WebSockets: uvicorn's, except that their runs may finish when the server stops.

The application receives a message when the server stops and closes the connection itself, a refusal is a
complete answer, and a connection without work can give its place to another (`room`).
"""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gpt_oss_server.http.connections.sub_protocols import GIVES_WAY, HOLDER, IDLE_SINCE, SERVER_STOPS


class SocketProtocol(WebSocketsSansIOProtocol):
    is_spare = False
    idle_since: float | None = None  # such a client counts on its connection, and asks for no other soon

    @property
    def holder(self) -> str:
        return str(self._state.get(HOLDER) or (self.client[0] if self.client else ""))

    @property
    def unfinished_since(self) -> float | None:
        return None if self.transport.is_closing() else self._state.get(IDLE_SINCE)

    @property
    def _state(self) -> dict[str, Any]:
        return self.scope["state"] if hasattr(self, "scope") else {}

    def give_way(self) -> None:
        """Closes a connection without work, for another."""
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": GIVES_WAY})
        self.conn.send_close(GIVES_WAY)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.close()

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
