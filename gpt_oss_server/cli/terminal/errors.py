"""What a command raises when it cannot be done."""

from __future__ import annotations


class CommandLineError(Exception):
    """Its text is a sentence for the user; the exit code is 1."""
