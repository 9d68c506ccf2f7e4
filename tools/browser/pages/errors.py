"""What can go wrong in the browser, in words the model reads.

    BrowserError
    ├── UsageError      the call itself: a bad argument, a cursor or link that does not exist
    ├── PageError       a page that cannot be read: refused, missing, too large, not text
    └── SearchError     a search that its backend did not answer

The text of each is a sentence for the model; it never holds a key, an internal address or a path of this
machine.
"""

from __future__ import annotations


class BrowserError(Exception):
    """The root: anything else that escapes is a fault of ours and is logged as one."""


class UsageError(BrowserError):
    """The model can put it right by calling differently."""


class PageError(BrowserError):
    """This page cannot be shown; another may."""


class SearchError(BrowserError):
    """The search gave no answer."""
