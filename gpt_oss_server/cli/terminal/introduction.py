"""A model as a greeting introduces it."""

from __future__ import annotations


def introduction(name: str, description: str) -> str:
    """The name and what it is: tiny, a 16M-parameter demo model. A name such as SGLang keeps its capitals."""
    about = description.rstrip(".")
    if not about:
        return name
    return f"{name}, {about}" if about[1:2].isupper() else f"{name}, {about[0].lower()}{about[1:]}"
