"""Creates identifiers, in one place so that tests can make them predictable."""

import hashlib
import re
import uuid
from collections import Counter
from typing import Protocol

CHOSEN = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
"""The ids of requests that ids of objects can follow."""


class Ids(Protocol):
    def __call__(self, prefix: str) -> str:
        """Returns a new, unique id, e.g. `msg_…` for the prefix "msg"."""
        ...


def random_ids(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"


def following(new: str, chosen: str, *, lasts: bool) -> str:
    """The new id with the id that the client chose for its request, if that is fit for one.

    The id of an object that lasts keeps its own random part too: it replaces no other, and nobody guesses it.
    """
    if not re.fullmatch(CHOSEN, chosen):
        return new
    prefix, _, own = new.partition("_")
    return f"{prefix}_{chosen}-{own}" if lasts else f"{prefix}_{chosen}"


class SeededIds:
    """The same ids in the same order for the same seed, so that a run can be repeated."""

    def __init__(self, seed: str) -> None:
        self._seed = seed.encode()
        self._counts: Counter[str] = Counter()

    def __call__(self, prefix: str) -> str:
        self._counts[prefix] += 1
        name = f"{prefix}:{self._counts[prefix]}".encode()
        return f"{prefix}_{hashlib.blake2b(name, key=self._seed, digest_size=16).hexdigest()}"


class CountingIds:
    """`msg_1`, `msg_2`, …: for snapshots."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def __call__(self, prefix: str) -> str:
        self._counts[prefix] += 1
        return f"{prefix}_{self._counts[prefix]}"
