"""The error that a command raises when it fails."""

from __future__ import annotations


class CommandLineError(Exception):
    """The message is a sentence for the user; the exit code is 1."""
