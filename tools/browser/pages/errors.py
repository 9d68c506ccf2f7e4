"""The browser's errors. The model reads their messages.

    BrowserError
    ├── UsageError      the call itself: a bad argument, a cursor or link that does not exist
    ├── PageError       a page that cannot be read: refused, missing, too large, not text
    └── SearchError     a search that its backend did not answer

Each message is a sentence for the model and never holds a key, an internal address or a path of this machine.
"""

from __future__ import annotations


class BrowserError(Exception):
    """The root of the browser's errors. Any other exception is a bug and is logged as one."""


class UsageError(BrowserError):
    """The model can correct this with a different call."""


class PageError(BrowserError):
    """This page cannot be shown, but another may."""


class SearchError(BrowserError):
    """The search returned no results because it failed."""
