"""API keys: who may use the server, and which tools.

Takes the settings, a file of keys and the headers of requests. Returns the `Access` of each request, or the
error that refuses it. A key itself is never kept: only its SHA-256 is. It must not know an API or a tool, nor
count what a key uses.
"""
