"""The commands of `gpt-oss-server`, one file each, and what several of them share.

A command takes parsed arguments and settings and returns an exit code. It loads what it needs when it runs,
and does not know the other commands.
"""
