"""The terminal chat, and its record; a `talker` is all that it knows of a server."""
