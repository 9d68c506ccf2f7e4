"""A model as a greeting introduces it."""

from __future__ import annotations


def introduction(name: str, description: str) -> str:
    """The name and what it is: tiny, a 16M-parameter demo model."""
    about = description.rstrip(".")
    return f"{name}, {about[:1].lower()}{about[1:]}" if about else name
