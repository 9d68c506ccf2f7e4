"""A page as text with links: what every body is converted to, and what every backend reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Document:
    """A page as text. `text` is clean (see `text.clean`) and holds 【i†…】 for `links[i]`."""

    url: str  # where it was found in the end
    title: str
    text: str
    links: tuple[str, ...] = ()
    note: str = ""  # for the reader, e.g. that only a part was read
