"""The links of one page, each shown as 【id†text】, or 【id†text†domain】 if it leads to another domain."""

from typing import Final
from urllib.parse import urljoin, urlsplit

from tools.browser.pages.text import clean

MAX_LINKS: Final = 5_000
_MAX_TEXT: Final = 300
_MAX_BASE: Final = 2_000  # characters: each link repeats it
LOCAL: Final = "local://"  # the scheme of a file in the local folder; see backends/local.py
_STAND_IN: Final = "http://local.invalid"  # urljoin joins only for schemes that it knows


class Links:
    def __init__(self, url: str, base: str | None = None) -> None:
        """`base`: the base address that the page declares for its links, if any."""
        self._base = (base and len(base) <= _MAX_BASE and join(url, base)) or url
        self._domain = domain(url)
        self._ids: dict[str, int] = {}

    @property
    def urls(self) -> tuple[str, ...]:
        """The absolute address of each id."""
        return tuple(self._ids)

    def marker(self, text: str, target: str) -> str:
        """The marker of a link; only its text if the target is not a page, or is the same place."""
        text = " ".join(text.split())[:_MAX_TEXT].replace("†", "‡")
        url = None if target.lstrip().startswith("#") else join(self._base, target)
        if url is None or not text:
            return text
        if url not in self._ids and len(self._ids) >= MAX_LINKS:
            return text
        number = self._ids.setdefault(url, len(self._ids))
        suffix = "" if domain(url) == self._domain else f"†{domain(url)}"
        return f"【{number}†{text}{suffix}】"


def join(base: str, target: str) -> str | None:
    """A link's absolute http(s) or local address, None for any other (mailto, javascript, broken)."""
    target = "".join(clean(target).split("\n")).strip().replace(" ", "%20")
    local = base.startswith(LOCAL)
    try:
        joined = urljoin(base.replace(LOCAL, _STAND_IN, 1) if local else base, target)
        parts = urlsplit(joined)
    except ValueError:
        return None
    if local and joined.startswith(_STAND_IN):
        return joined.partition("#")[0].replace(_STAND_IN, LOCAL, 1)
    return joined if parts.scheme in ("http", "https") and parts.netloc else None


def domain(url: str) -> str:
    """The domain of a web page; empty for a local file."""
    try:
        return clean(urlsplit(url).netloc).replace("†", "‡")
    except ValueError:
        return ""
