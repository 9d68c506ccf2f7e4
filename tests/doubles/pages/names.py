"""The names that the Python blocks of a page share while a test runs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from openai import OpenAI


@contextmanager
def shared_names(**given: object) -> Iterator[dict[str, object]]:
    """The clients among the names are closed at the end; the garbage collector would warn of them."""
    names = dict(given)
    try:
        yield names
    finally:
        for found in names.values():
            if isinstance(found, OpenAI):
                found.close()
