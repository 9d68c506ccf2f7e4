"""gpt-oss-server: a Harmony-format server for the open-weight gpt-oss models."""

__version__ = "0.1.0"
