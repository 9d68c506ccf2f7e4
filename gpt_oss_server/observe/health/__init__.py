"""The health of a server: whether it lives, takes requests, and can generate. It must not know an API."""
