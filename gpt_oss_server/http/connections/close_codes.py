"""The close codes of WebSockets that this server gives a meaning."""

SERVER_STOPS = 1012  # the server is going away in good order
