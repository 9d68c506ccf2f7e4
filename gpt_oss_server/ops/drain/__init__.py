"""The end of a server: what it still does after a signal, and for how long.

Takes the work of a server as tasks, and its background work. It must not know an API, nor the HTTP server.
"""
