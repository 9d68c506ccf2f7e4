"""A page as text with links: the result of every conversion and every backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A page as text. `text` is clean (see `text.clean`) and holds 【i†…】 for `links[i]`."""

    url: str  # the final address
    title: str
    text: str
    links: tuple[str, ...] = ()
    note: str = ""  # a note for the reader, e.g. that only a part was read
