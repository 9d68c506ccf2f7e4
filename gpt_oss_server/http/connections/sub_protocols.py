"""What the application and a WebSocket's connection know of each other: sub-protocols, state and codes.

A page cannot send headers with a WebSocket, so OpenAI's SDK sends the key as a sub-protocol there.
"""

from collections.abc import Sequence

_KEY = "openai-insecure-api-key."


def chosen(offered: Sequence[str]) -> str | None:
    """A browser that offers some closes the connection if the server accepts none."""
    return next((name for name in offered if not name.startswith(_KEY)), None)


def key_among(offered: str) -> str | None:
    """The key in the value of a `Sec-WebSocket-Protocol` header."""
    names = (name.strip() for name in offered.split(","))
    return next((name.removeprefix(_KEY) for name in names if name.startswith(_KEY)), None) or None


IDLE = 1000  # no request came for long
SERVER_STOPS = 1012  # the server is going away in good order
HOLDER = "holder"  # in the state of a scope: the owner of a socket's key
IDLE_SINCE = "idle_since"  # and since when it has had no request at work; None while it has one
GIVES_WAY = 1013  # another connection needs the place of one without work
