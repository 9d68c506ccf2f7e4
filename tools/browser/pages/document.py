"""Pages before and after their conversion to text, and the browser's errors.

The model reads the errors' messages: each is a sentence and never holds a key, an internal address or a path
of this machine.
"""

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["html", "markdown", "text", "pdf", "office"]
MAX_CHARS: Final = 2_000_000  # of a page's text, or about 500 views


@dataclass(frozen=True, slots=True)
class PageBody:
    """The bytes of a page, fetched or read from a folder."""

    url: str  # after redirects
    content_type: str  # as sent; "" if it was not sent
    data: bytes
    cut: bool = False  # whether the data are incomplete


@dataclass(frozen=True, slots=True)
class Document:
    """A page as text. `text` is clean (see `text.clean`) and holds 【i†…】 for `links[i]`."""

    url: str  # the final address
    title: str
    text: str
    links: tuple[str, ...] = ()
    note: str = ""  # a note for the reader, e.g. that only a part was read


class BrowserError(Exception):
    """The root of the browser's errors. Any other exception is a bug and is logged as one."""


class UsageError(BrowserError):
    """The model can correct this with a different call."""


class PageError(BrowserError):
    """This page cannot be shown, but another may."""


class SearchError(BrowserError):
    """The search returned no results because it failed."""
