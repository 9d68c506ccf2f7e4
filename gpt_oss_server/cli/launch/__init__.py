"""Coding agents with a model of this server: a table of them, the server that they talk to, and their run.

It must not know a command, and never writes to a client's own configuration.
"""
