"""The containers API: the files of a conversation's python session.

Takes container names and file bytes over HTTP and returns JSON and bytes. It must not know how python runs;
`tools.python` does.
"""
