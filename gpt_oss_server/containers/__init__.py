"""The containers API: the files of a conversation's python session.

Names of containers and bytes of files come in over HTTP, JSON and bytes go out. It must not know how python
runs; `tools.python` does.
"""
