"""A server as a command starts it: its settings checked, its engine and tools made, its socket, its end.

Takes settings. Returns engines, tools and exit codes, or raises a sentence. It must not know a command.
"""
