"""How deeply the elements of a page are nested, found before it is parsed.

Pure. Parsing takes time quadratic in the depth, so a page deeper than any reader needs is refused.
"""

from __future__ import annotations

import re
from typing import Final

MAX_DEPTH: Final = 10_000  # browsers stop at 512
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,31})")
_SHALLOW: Final = frozenset({  # closed by what follows, or never open
    "p", "li", "dt", "dd", "tr", "td", "th", "tbody", "thead", "tfoot", "option", "optgroup", "colgroup",
    "rt", "rp", "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr", "html", "head", "body",
})  # fmt: skip


def too_deep(html: str) -> bool:
    """Whether more elements are open somewhere than MAX_DEPTH, as far as tags alone show."""
    if html.count("<") <= MAX_DEPTH:
        return False
    depth = 0
    for tag in _TAG.finditer(html):
        if tag[2].lower() in _SHALLOW:
            continue
        depth = max(0, depth - 1) if tag[1] else depth + 1
        if depth > MAX_DEPTH:
            return True
    return False
