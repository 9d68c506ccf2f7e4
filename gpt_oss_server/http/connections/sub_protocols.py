"""Sub-protocols of WebSockets: the connection's, and the key that OpenAI's SDK sends from a browser.

A page cannot send headers with a WebSocket.
"""

from __future__ import annotations

from collections.abc import Sequence

_KEY = "openai-insecure-api-key."


def chosen(offered: Sequence[str]) -> str | None:
    """A browser that offers some closes the connection if the server accepts none."""
    return next((name for name in offered if not name.startswith(_KEY)), None)


def key_among(offered: str) -> str | None:
    """The key in the value of a `Sec-WebSocket-Protocol` header."""
    names = (name.strip() for name in offered.split(","))
    return next((name.removeprefix(_KEY) for name in names if name.startswith(_KEY)), None) or None


SERVER_STOPS = 1012  # the server is going away in good order
