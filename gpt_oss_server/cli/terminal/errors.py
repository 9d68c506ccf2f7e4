"""The error that a command raises when it fails, and which errors are for the user."""

from __future__ import annotations

from gpt_oss_server.settings.options import SettingsError


class CommandLineError(Exception):
    """The message is a sentence for the user; the exit code is 1."""


def is_expected(error: Exception) -> bool:
    """Whether its text is a sentence for the user; any other error is a bug."""
    from gpt_oss_server.errors import ApiError
    from inference.engine import InferenceError

    return isinstance(error, CommandLineError | SettingsError | InferenceError | ApiError)
