"""A server as a command starts it: its settings checked, its engine and tools made, its socket, its end.

It must not know a command.
"""
