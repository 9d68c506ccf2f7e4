"""The models of a server: what samples, under which names, in which format, and within which limits.

Takes an engine and the settings. Returns a frozen `Model`. It must not know a request, nor an API.
"""
